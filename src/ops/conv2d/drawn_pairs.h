#pragma once
// Room: ops, for tests only. Pairs of bf16 numbers as their kernels meet them.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <vector>

#include "base/draws.h"

namespace tri::ops {

class DrawnPairs : public testing::Test {
 protected:
  // A bf16 number of any exponent that sums survive; every fourth is zero, subnormal or tiny.
  uint32_t number() {
    const auto sign_and_mantissa = draws.in<uint32_t>(0, 256);
    const auto exponent =
        draws.in(0, 4) == 0 ? draws.in<uint32_t>(0, 3) : 100 + draws.in<uint32_t>(0, 50);
    return (sign_and_mantissa & 0x80) << 8 | exponent << 7 | (sign_and_mantissa & 0x7f);
  }
  std::vector<float> pairs(int64_t count) {
    std::vector<float> made(static_cast<size_t>(count));
    for (float& unit : made) unit = std::bit_cast<float>(number() | number() << 16);
    return made;
  }
  static uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }
  base::Draws draws{7};
};

}  // namespace tri::ops
