#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "ops/conv2d/block_kernel.h"
#include "ops/conv2d/drawn_pairs.h"
#include "ops/conv2d/pair_kernel.h"
#include "simd/target.h"

namespace tri::ops {
namespace {

class BlockKernel : public DrawnPairs {
 protected:
  void SetUp() override {
    if (!simd::force_target(simd::kAmxTarget).has_value())
      GTEST_SKIP() << "the machine does not multiply blocks";
  }
  void TearDown() override { ASSERT_TRUE(simd::force_target("auto").has_value()); }
};

// What sixteen units of a row add to a sum, beginning with row `w` of a panel; `depth` of them.
float added(const float* row, const float* panel, int64_t w, int64_t depth, int64_t column,
            float sum) {
  uint32_t a[kBlockUnits] = {}, b[kBlockUnits] = {};
  for (int64_t i = 0; i < depth; ++i) {
    a[i] = std::bit_cast<uint32_t>(row[i]);
    b[i] = std::bit_cast<uint32_t>(panel[(w + i) * kPanel + column]);
  }
  return reference::block_sum(a, 1, b, 1, sum);
}

// The sum of a row and a column over segments: blocks go on over segments whose weights follow
// each other.
float sum_over(const std::vector<Segment>& segments, const float* row, const float* panel,
               int64_t column, float sum) {
  std::vector<std::pair<float, int64_t>> units;  // of the row; the row of the panel
  for (const Segment& s : segments)
    for (int64_t i = 0; i < s.k; ++i) units.emplace_back(row[s.x + i], s.w + i);
  for (size_t i = 0; i < units.size();) {
    size_t end = i + 1;
    while (end < units.size() && end - i < kBlockUnits &&
           units[end].second == units[end - 1].second + 1)
      ++end;
    float some[kBlockUnits];
    for (size_t k = i; k < end; ++k) some[k - i] = units[k].first;
    sum = added(some, panel, units[i].second, static_cast<int64_t>(end - i), column, sum);
    i = end;
  }
  return sum;
}

struct Case {
  int64_t units;                  // of a row and a panel
  std::vector<Segment> segments;  // of the first class
};

TEST_F(BlockKernel, tile_is_its_reference_bit_by_bit) {
  const Case cases[] = {
      {32, {{0, 0, 32}}},                                       // whole blocks, in place
      {29, {{0, 0, 11}, {17, 17, 12}}},                         // units left out
      {21, {{0, 0, 7}, {7, 7, 7}, {14, 14, 7}}},                // three that follow each other
      {40, {{8, 0, 18}, {0, 18, 18}}},                          // weights do, rows do not
      {39, {{0, 0, 7}, {8, 7, 16}, {31, 23, 8}, {24, 33, 6}}},  // ends within blocks
      {700, {{0, 0, 100}, {120, 100, 300}, {420, 401, 280}}},   // more than is gathered at once
      {1100, {{0, 0, 1088}}},                                   // the same in place
  };
  for (const auto& [units, segments] : cases) {
    for (const int64_t panels : {1, 2, 3, 8}) {
      for (const int32_t rows : {1, 15, 16, 17, 32, 33, 50}) {
        if (units > 100 && rows != 33) continue;
        const int64_t width = panels * kPanel;
        const auto x = pairs(rows * units), panel = pairs(panels * units * kPanel);
        std::vector<float> bias(static_cast<size_t>(width)),
            out(static_cast<size_t>(rows * width), NAN);
        for (float& b : bias) b = std::bit_cast<float>(number() << 16);
        std::vector<RowRef> refs;
        for (int32_t r = 0; r < rows; ++r)
          refs.push_back({static_cast<int32_t>(r * units), static_cast<int32_t>(r * width)});
        if (rows == 15) std::swap(refs[3], refs[4]);       // not evenly apart
        const int32_t whole = rows - (rows > 40 ? 3 : 0);  // the others meet no unit
        const RowClass classes[] = {{0, whole, 0, static_cast<int32_t>(segments.size())},
                                    {whole, rows, 0, 0}};
        pair_tile({x.data(), panel.data(), bias.data(), out.data(), refs.data(), segments.data(),
                   classes, 2},
                  panels, units * kPanel);
        for (int64_t r = 0; r < rows; ++r) {
          const RowRef& ref = refs[static_cast<size_t>(r)];
          for (int64_t c = 0; c < width; ++c) {
            const float begin = bias[static_cast<size_t>(c)];
            const float want = r >= whole ? begin
                                          : sum_over(segments, x.data() + ref.x,
                                                     panel.data() + c / kPanel * units * kPanel,
                                                     c % kPanel, begin);
            ASSERT_EQ(bits(want), bits(out[static_cast<size_t>(ref.out + c)]))
                << "row " << r << " of " << rows << ", channel " << c << " of " << width << ", "
                << units << " units";
          }
        }
      }
    }
  }
}

TEST_F(BlockKernel, rounded_tile_is_the_tile_stored_as_bf16) {
  for (int64_t channels = 1; channels <= kMostPanels * kPanel; channels += 5)
    for (int32_t rows = 1; rows <= 49; rows += 12)
      expect_rounded_is_stored(rows, channels, 21, 9 * kPanel);
}

TEST_F(BlockKernel, outer_tile_is_its_reference_bit_by_bit) {
  constexpr int64_t kPositions = 64, kPanelFloats = kPositions * kPanel + kSkew;
  const std::vector<ops::Run> runs = {{0, 32, 32}, {48, 16, 16}};
  for (const auto& [xs, gs] : {std::pair{1, 1}, {3, 1}, {1, 2}, {2, 2}, {3, 5}}) {
    const int64_t stride = xs * kBlockFloats + 48;  // of the sums of a panel of g
    const auto x = pairs(xs * kPanelFloats), g = pairs(gs * kPanelFloats);
    std::vector<float> sums(static_cast<size_t>(gs * stride));
    for (float& s : sums) s = std::bit_cast<float>(number() << 16);
    const auto before = sums;
    block_outer_tile({x.data(), kPanel, kPanelFloats, xs}, {g.data(), kPanel, kPanelFloats, gs},
                     runs.data(), runs.size(), sums.data(), stride);
    for (int64_t i = 0; i < gs * stride; ++i) {
      const int64_t o = i / stride, q = i % stride / kBlockFloats;
      const int64_t r = i % stride / kPanel % kPanel, c = i % stride % kPanel;
      float sum = before[static_cast<size_t>(i)];
      for (const ops::Run& run : runs)
        for (int64_t p = 0; q < xs && p < run.length; p += kBlockUnits) {
          uint32_t a[kBlockUnits], b[kBlockUnits];
          for (int64_t k = 0; k < kBlockUnits; ++k) {
            a[k] = bits(x[static_cast<size_t>(q * kPanelFloats + (run.x + p + r) * kPanel + k)]);
            b[k] = bits(g[static_cast<size_t>(o * kPanelFloats + (run.g + p + k) * kPanel + c)]);
          }
          sum = reference::block_sum(a, 1, b, 1, sum);
        }
      ASSERT_EQ(bits(sum), bits(sums[static_cast<size_t>(i)])) << "sum " << i;
    }
  }
}

TEST_F(BlockKernel, packs_rows_in_pairs) {
  constexpr int64_t kChannels = 37, kStride = 41, kPanelStride = kBlockFloats + kSkew;
  std::vector<float> rows(static_cast<size_t>(kBlockDepth * kStride));
  for (float& v : rows) v = std::bit_cast<float>(number() << 16);
  const auto code = [](float v) {  // subnormal numbers become zero
    return (bits(v) & 0x7f800000) == 0 ? bits(v) >> 16 & 0x8000u : bits(v) >> 16;
  };
  for (const int64_t count : {1, 2, 17, 32}) {
    for (const bool turned : {false, true}) {
      std::vector<float> packed(3 * kPanelStride, NAN);
      pack_block(rows.data(), count, kStride, kChannels, turned, packed.data(), kPanelStride);
      for (int64_t c = 0; c < 3 * kPanel; ++c) {
        for (int64_t i = 0; i < kBlockUnits; ++i) {
          const auto number_of = [&](int64_t row) {
            return row < count && c < kChannels ? code(rows[static_cast<size_t>(row * kStride + c)])
                                                : 0;
          };
          const int64_t in_block = turned ? c % kPanel * kBlockUnits + i : i * kPanel + c % kPanel;
          const float got = packed[static_cast<size_t>(c / kPanel * kPanelStride + in_block)];
          ASSERT_EQ(number_of(2 * i) | number_of(2 * i + 1) << 16, bits(got))
              << "channel " << c << ", pair " << i << " of " << count << " rows";
        }
      }
    }
  }
}

}  // namespace
}  // namespace tri::ops
