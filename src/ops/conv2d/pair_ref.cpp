#include <bit>
#include <cmath>

#include "ops/conv2d/block_kernel.h"
#include "ops/conv2d/pair_kernel.h"
#include "simd/target.h"

namespace tri::ops {

Products products_for(numeric::Format working) {
  using numeric::Format;
  const bool narrow =
      working == Format::kBf16 || working == Format::kF8e4b4 || working == Format::kF8e5;
  return narrow && simd::multiplies_bf16() ? Products::kBf16 : Products::kF32;
}

namespace reference {
namespace {

// Subnormal numbers are read and written as zeros.
float flushed(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}

float low(uint32_t pair) { return flushed(std::bit_cast<float>(pair << 16)); }
float high(uint32_t pair) { return flushed(std::bit_cast<float>(pair & 0xffff0000u)); }

}  // namespace

float pair_sum(uint32_t a, uint32_t b, float sum) noexcept {
  const float second = flushed(std::fma(high(a), high(b), flushed(sum)));
  return flushed(std::fma(low(a), low(b), second));
}

float block_sum(const uint32_t* a, int64_t a_step, const uint32_t* b, int64_t b_step,
                float sum) noexcept {
  float first = 0, second = 0;
  for (int64_t i = 0; i < kBlockUnits; ++i, a += a_step, b += b_step) {
    first = flushed(std::fma(low(*a), low(*b), first));
    second = flushed(std::fma(high(*a), high(*b), second));
  }
  return flushed(flushed(sum) + flushed(first + second));
}

}  // namespace reference
}  // namespace tri::ops
