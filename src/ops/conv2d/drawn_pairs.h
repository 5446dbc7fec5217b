#pragma once
// Room: ops, for tests only. Pairs of bf16 numbers as their kernels meet them.
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <iterator>
#include <vector>

#include "base/ceil_div.h"
#include "base/draws.h"
#include "ops/conv2d/pair_kernel.h"

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
  // pair_tile_rounded() of so many rows, whose results lie `stride` apart, does what pair_tile()
  // and store_rows() do, on the active target. Sums of all kinds: what a bf16 tensor takes, zeros,
  // subnormal numbers, and what it has no room for.
  void expect_rounded_is_stored(int32_t rows, int64_t channels, int64_t units, int64_t stride) {
    const uint32_t odd[] = {0u,          0x80000000u, 0x00000001u, 0x00400000u, 0x80000100u,
                            0x7f7fffffu, 0x7f800000u, 0xff7fc000u, 0x7fc00000u};
    const int64_t panels = base::ceil_div(channels, kPanel);
    const auto x = pairs(rows * units), panel = pairs(panels * units * kPanel);
    std::vector<float> bias(static_cast<size_t>(panels * kPanel)),
        out(static_cast<size_t>(rows * stride), 0.0f);
    for (float& b : bias)
      b = draws.in(0, 3) == 0 ? std::bit_cast<float>(odd[draws.in<size_t>(0, std::size(odd))])
                              : std::bit_cast<float>(number() << 16);
    std::vector<RowRef> refs;
    for (int32_t r = 0; r < rows; ++r)
      refs.push_back({static_cast<int32_t>(r * units), static_cast<int32_t>(r * stride)});
    const Segment all_units{0, 0, static_cast<int32_t>(units)};
    // The second class meets no unit: its sums are the bias as it is.
    const RowClass classes[] = {{0, rows / 2, 0, 1}, {rows / 2, rows, 0, 0}};
    const PanelTile tile{x.data(),    panel.data(), bias.data(), out.data(),
                         refs.data(), &all_units,   classes,     2};
    pair_tile(tile, panels, units * kPanel);
    std::vector<uint16_t> want(static_cast<size_t>(rows * stride), 0xabcd), got = want;
    Sink sink{want.data(), Format::kBf16, channels, stride, rows};
    const StoreCounts counted = store_rows(sink, {0, 0, rows, 0, channels}, out.data(), stride);
    const StoreCounts lost = pair_tile_rounded(tile, got.data(), channels, panels, units * kPanel);
    ASSERT_EQ(want, got) << channels << " channels, " << rows << " rows";
    ASSERT_EQ(counted.overflow, lost.overflow);
    ASSERT_EQ(counted.underflow, lost.underflow);
  }
  static uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }
  base::Draws draws{7};
};

}  // namespace tri::ops
