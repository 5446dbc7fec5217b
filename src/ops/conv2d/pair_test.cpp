#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "numeric/round.h"
#include "ops/conv2d/drawn_pairs.h"
#include "ops/conv2d/pair_kernel.h"
#include "simd/target.h"

namespace tri::ops {
namespace {

class PairKernel : public DrawnPairs {
 protected:
  void SetUp() override {
    if (!simd::force_target(simd::kBf16Target).has_value())
      GTEST_SKIP() << "the machine has no products of bf16";
  }
  void TearDown() override { ASSERT_TRUE(simd::force_target("auto").has_value()); }
};

TEST_F(PairKernel, tile_is_its_reference_bit_by_bit) {
  constexpr int64_t kUnits = 29;
  for (const int panels : {1, 2}) {
    for (int32_t rows = 1; rows <= 19; ++rows) {
      const auto x = pairs(rows * kUnits), panel = pairs(2 * kUnits * kPanel);
      std::vector<float> bias(2 * kPanel), out(static_cast<size_t>(rows * 2 * kPanel), NAN);
      for (float& b : bias) b = std::bit_cast<float>(number() << 16);
      std::vector<RowRef> refs;
      for (int32_t r = 0; r < rows; ++r)
        refs.push_back({static_cast<int32_t>(r * kUnits), static_cast<int32_t>(r * 2 * kPanel)});
      // Two segments, the units between them left out.
      const std::vector<Segment> segments = {{0, 0, 11}, {17, 17, 12}};
      const RowClass all{0, rows, 0, 2};
      pair_tile(
          {x.data(), panel.data(), bias.data(), out.data(), refs.data(), segments.data(), &all, 1},
          panels, kUnits * kPanel);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < panels * kPanel; ++c) {
          float sum = bias[static_cast<size_t>(c)];
          for (const Segment& s : segments)
            for (int64_t k = s.w; k < s.w + s.k; ++k)
              sum =
                  reference::pair_sum(bits(x[static_cast<size_t>(r * kUnits + k)]),
                                      bits(panel[static_cast<size_t>(c / kPanel * kUnits * kPanel +
                                                                     k * kPanel + c % kPanel)]),
                                      sum);
          ASSERT_EQ(bits(sum), bits(out[static_cast<size_t>(r * 2 * kPanel + c)]))
              << "row " << r << " of " << rows << ", channel " << c;
        }
      }
    }
  }
}

TEST_F(PairKernel, rounded_tile_is_the_tile_stored_as_bf16) {
  for (int64_t channels = 1; channels <= 2 * kPanel; ++channels)
    for (int32_t rows = 1; rows <= 19; rows += 3) expect_rounded_is_stored(rows, channels, 5, 40);
}

TEST_F(PairKernel, outer_tile_is_its_reference_bit_by_bit) {
  constexpr int64_t kRows = kAvx512OuterRows, kPositions = 23, kEach = kRows * kPanel;
  ASSERT_EQ(outer_rows(), kRows);
  for (const auto& [xs, gs] : {std::pair{1, 1}, {3, 1}, {1, 2}, {2, 2}, {3, 5}}) {
    const int64_t stride = xs * kEach + 48;  // of the sums of a panel of g
    const auto x = pairs(xs * kPositions * kRows), g = pairs(gs * kPositions * kPanel);
    const std::vector<ops::Run> runs = {{0, 2, 9}, {12, 11, 10}};
    std::vector<float> sums(static_cast<size_t>(gs * stride));
    for (float& s : sums) s = std::bit_cast<float>(number() << 16);
    const auto before = sums;
    pair_outer_tile({x.data(), kRows, kPositions * kRows, xs},
                    {g.data(), kPanel, kPositions * kPanel, gs}, runs.data(), runs.size(),
                    sums.data(), stride);
    for (int64_t i = 0; i < gs * stride; ++i) {
      const int64_t o = i / stride, q = i % stride / kEach;
      const int64_t r = i % stride / kPanel % kRows, c = i % stride % kPanel;
      float sum = before[static_cast<size_t>(i)];
      for (const ops::Run& run : runs)
        for (int64_t p = 0; q < xs && p < run.length; ++p)
          sum = reference::pair_sum(
              bits(x[static_cast<size_t>((q * kPositions + run.x + p) * kRows + r)]),
              bits(g[static_cast<size_t>((o * kPositions + run.g + p) * kPanel + c)]), sum);
      ASSERT_EQ(bits(sum), bits(sums[static_cast<size_t>(i)])) << "sum " << i;
    }
  }
}

TEST_F(PairKernel, packs_the_rows_of_two_samples) {
  constexpr int64_t kChannels = 21, kColumns = 3, kStep = 40, kStride = 1000;
  std::vector<float> first(kChannels * kColumns), second = first;
  for (float& v : first) v = std::bit_cast<float>(number() << 16);
  for (float& v : second) v = std::bit_cast<float>(number() << 16);
  const auto code = [](float v) {  // subnormal numbers become zero
    return (bits(v) & 0x7f800000) == 0 ? bits(v) >> 16 & 0x8000u : bits(v) >> 16;
  };
  for (const int64_t width : {outer_rows(), kPanel}) {
    for (const bool both : {false, true}) {
      std::vector<float> packed(4 * kStride, NAN);
      pack_pairs(first.data(), both ? second.data() : nullptr, kColumns, kChannels, kChannels,
                 width, packed.data(), kStep, kStride);
      for (int64_t i = 0; i < kColumns; ++i) {
        for (int64_t c = 0; c < (kChannels + width - 1) / width * width; ++c) {
          const auto at = static_cast<size_t>(i * kChannels + c);
          const uint32_t want =
              c >= kChannels ? 0 : code(first[at]) | (both ? code(second[at]) << 16 : 0);
          ASSERT_EQ(want,
                    bits(packed[static_cast<size_t>(c / width * kStride + i * kStep + c % width)]));
        }
      }
    }
  }
}

TEST_F(PairKernel, turns_blocks_of_weights) {
  std::vector<uint16_t> block(kPanel * kPanel);
  for (uint16_t& code : block) code = static_cast<uint16_t>(number());
  for (int64_t columns = 1; columns <= kPanel; ++columns) {
    std::vector<float> turned(static_cast<size_t>(kPanel * kPanel)), want(8 * kPanel, 77.0f);
    auto got = want;
    transpose_block(Format::kBf16, block.data(), kPanel, turned.data(), kPanel);
    pair_rows(turned.data(), columns, want.data());
    turn_pairs(block.data(), columns, got.data());
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_EQ(bits(want[i]), bits(got[i])) << i << " of " << columns << " columns";
  }
}

TEST_F(PairKernel, rounds_as_the_format_does) {
  std::vector<float> values;
  for (int i = 0; i < 1003; ++i)  // normal numbers of any exponent
    values.push_back(std::bit_cast<float>(draws.in<uint32_t>(0, 0x7e000000) + 0x00800000 +
                                          (i % 2 == 0 ? 0x80000000 : 0)));
  std::vector<uint16_t> codes(values.size());
  narrow(values.data(), static_cast<int64_t>(values.size()), codes.data());
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(numeric::encode(numeric::Format::kBf16, values[i]).bits, codes[i]) << values[i];
}

TEST(Products, are_those_of_bf16_only_where_it_has_all_numbers_of_the_weights) {
  using numeric::Format;
  const Products best = simd::multiplies_bf16() ? Products::kBf16 : Products::kF32;
  for (const Format format : {Format::kBf16, Format::kF8e4b4, Format::kF8e5}) {
    EXPECT_EQ(products_for(format), best);
    for (uint32_t code = 0; code < 1u << (8 * numeric::storage_bytes(format)); ++code) {
      const float value = numeric::decode(format, code);
      if (std::isnan(value)) continue;
      EXPECT_EQ(numeric::decode(Format::kBf16, numeric::encode(Format::kBf16, value).bits), value);
    }
  }
  EXPECT_EQ(products_for(Format::kF16), Products::kF32);
  EXPECT_EQ(products_for(Format::kF16e6), Products::kF32);
  EXPECT_EQ(products_for(Format::kF32), Products::kF32);
}

}  // namespace
}  // namespace tri::ops
