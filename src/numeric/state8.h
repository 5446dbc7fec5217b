#pragma once
// Room: numeric. In: 32 neighbouring values of optimizer state. Out: one byte each and one bf16
// scale for the group, 8.5 bits per value; and back.
//
// Note [State in 8 bits]: the scale is the largest magnitude of the group, rounded up to bf16, so
// that no value exceeds it; bf16 rather than fp16, whose range ends at 6e-8 while gradients do not.
//   first moment   y = x / scale in [-1, 1], companded by 2y / (1 + |y|), times 127: fine steps
//                  near zero, where most values are. Error at most scale / 500 there, scale / 126
//                  at the ends. Back: c / (254 - |c|) times the scale.
//   second moment  y = sqrt(v) / scale in [0, 1], times 255, rounded up with the probability of
//                  the fraction. Error of sqrt(v) at most scale / 254, zero on the average. To the
//                  nearest would never do: with a decay of 0.999 a moment falls by 1 in 2000 a
//                  step, less than half of any code, so that it would only ever rise (it would be
//                  twice as large as it should soon after gradients halve). A value above zero
//                  keeps a code above zero: a zero here would divide the first moment by epsilon
//                  alone.
// Divisions by the scale are products with its rounded inverse; scales below the normal numbers,
// whose inverse would be infinite, are zero, and so are their groups.
// A group with a value that is not finite gets kPoisonedScale and decodes to NaN throughout.
// Only exactly rounded operations are used, none fused: simd/state8-inl.h gives the same bits.
#include <bit>
#include <cstddef>
#include <cstdint>

#include "numeric/noise.h"

namespace tri::numeric {

inline constexpr size_t kStateGroup = 32;
inline constexpr uint16_t kPoisonedScale = 0x7fc0;  // NaN

// n <= kStateGroup values; a short last group is treated as if filled with zeros. Return the scale.
uint16_t encode_first_moment(const float* src, size_t n, int8_t* codes) noexcept;
// Value i is rounded with noise(key, first + i). REQUIRES: values are not negative.
uint16_t encode_second_moment(const float* src, size_t n, uint8_t* codes, NoiseKey key,
                              uint32_t first) noexcept;

// What is added to a second moment's code before it is cut off: kDitherStart plus kDitherStep times
// 24 random bits. Both ends stay away from 0 and 1 by 2^-12, more than the rounding errors of a
// code on its way there and back, so that a value that does not change keeps its code.
inline constexpr float kDitherStart = 0x1p-12f;
inline constexpr float kDitherStep = (1.0f - 0x1p-11f) * 0x1p-24f;

void decode_first_moment(const int8_t* codes, uint16_t scale, size_t n, float* dst) noexcept;
void decode_second_moment(const uint8_t* codes, uint16_t scale, size_t n, float* dst) noexcept;

// The scale for a group whose largest magnitude has these fp32 bits.
constexpr uint16_t state_scale(uint32_t largest) {
  if (largest >= 0x7f800000) return kPoisonedScale;
  if (largest < 0x00800000) return 0;
  const uint32_t up = (largest + 0xffff) >> 16;
  return static_cast<uint16_t>(up < 0x7f80 ? up : 0x7f7f);
}

// Otherwise all codes are zero, and there is no inverse.
constexpr bool scale_divides(uint16_t scale) { return scale != 0 && scale != kPoisonedScale; }

// REQUIRES: scale_divides(scale).
constexpr float inverse_scale(uint16_t scale) {
  return 1.0f / std::bit_cast<float>(uint32_t{scale} << 16);
}

}  // namespace tri::numeric
