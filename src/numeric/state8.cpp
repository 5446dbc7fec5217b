#include "numeric/state8.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace tri::numeric {
namespace {

uint32_t magnitude(float value) { return std::bit_cast<uint32_t>(value) & 0x7fffffff; }

float widen(uint16_t scale) { return std::bit_cast<float>(uint32_t{scale} << 16); }

// To the nearest integer, ties to even: the ulp of the sum is 1. REQUIRES: |x| < 2^22.
float nearest(float x) {
  constexpr float kMagic = 0x1.8p23f;
  return (x + kMagic) - kMagic;
}

}  // namespace

uint16_t encode_first_moment(const float* src, size_t n, int8_t* codes) noexcept {
  TRI_DCHECK(n <= kStateGroup, "n = {}", n);
  uint32_t largest = 0;
  for (size_t i = 0; i < n; ++i) largest = std::max(largest, magnitude(src[i]));
  const uint16_t scale = state_scale(largest);
  const float inverse = scale_divides(scale) ? inverse_scale(scale) : 0.0f;
  for (size_t i = 0; i < n; ++i) {
    const float y = scale_divides(scale) ? src[i] * inverse : 0.0f;
    codes[i] = static_cast<int8_t>(nearest(y * 254.0f / (1.0f + std::fabs(y))));
  }
  return scale;
}

void decode_first_moment(const int8_t* codes, uint16_t scale, size_t n, float* dst) noexcept {
  for (size_t i = 0; i < n; ++i) {
    const auto code = static_cast<float>(codes[i]);
    dst[i] = code / (254.0f - std::fabs(code)) * widen(scale);
  }
}

uint16_t encode_second_moment(const float* src, size_t n, uint8_t* codes, NoiseKey key,
                              uint32_t first) noexcept {
  TRI_DCHECK(n <= kStateGroup, "n = {}", n);
  uint32_t largest = 0;
  for (size_t i = 0; i < n; ++i) largest = std::max(largest, magnitude(std::sqrt(src[i])));
  const uint16_t scale = state_scale(largest);
  const float inverse = scale_divides(scale) ? inverse_scale(scale) : 0.0f;
  for (size_t i = 0; i < n; ++i) {
    const float y = scale_divides(scale) ? std::sqrt(src[i]) * inverse : 0.0f;
    const auto random = static_cast<float>(noise(key, first + static_cast<uint32_t>(i)) >> 8);
    const float dither = random * kDitherStep + kDitherStart;
    const int least = y > 0.0f ? 1 : 0;
    codes[i] = static_cast<uint8_t>(std::clamp(static_cast<int>(y * 255.0f + dither), least, 255));
  }
  return scale;
}

void decode_second_moment(const uint8_t* codes, uint16_t scale, size_t n, float* dst) noexcept {
  constexpr float kStep = 1.0f / 255.0f;
  for (size_t i = 0; i < n; ++i) {
    const float root = static_cast<float>(codes[i]) * kStep * widen(scale);
    dst[i] = root * root;
  }
}

}  // namespace tri::numeric
