#include "ops/conv2d/panel_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "ops/drawn_floats.h"
#include "simd/target_fixture.h"

namespace tri::ops {
namespace {

class PanelKernel : public simd::TargetTest {};
TRI_FOR_EACH_TARGET(PanelKernel);

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(PanelGroups, are_even_and_cover_all_panels) {
  for (int64_t most = 1; most <= 4; ++most)
    for (int64_t panels = 0; panels <= 40; ++panels) {
      const PanelGroups groups{panels, most};
      int64_t next = 0, least = panels, largest = 0;
      for (int64_t i = 0; i < groups.count(); ++i) {
        EXPECT_EQ(groups.begin(i), next);
        next = groups.begin(i + 1);
        least = std::min(least, next - groups.begin(i));
        largest = std::max(largest, next - groups.begin(i));
      }
      EXPECT_EQ(next, panels);
      EXPECT_EQ(largest, groups.largest()) << panels << " of " << most;
      EXPECT_LE(largest, most);
      EXPECT_LE(largest - least, 1);
    }
}

// Rows of every remainder, in two classes of unequal segments, with and without a bias.
TEST_P(PanelKernel, panels_together_have_the_bits_of_panels_alone) {
  constexpr int64_t kDepth = 37, kStride = kDepth * kPanel + 16, kMost = 29;
  const std::array<Segment, 3> segments = {Segment{0, 0, 20}, {25, 20, 17}, {3, 5, 11}};
  const auto x = drawn_floats(1, kMost * 48 + 64);
  const auto weights = drawn_floats(2, kMostPanels * kStride);
  const auto biases = drawn_floats(3, kMostPanels * kPanel);
  constexpr int64_t kWidth = kMostPanels * kPanel;
  for (int64_t panels = 1; panels <= most_panels(); ++panels)
    for (int32_t count = 1; count <= kMost; ++count) {
      std::vector<RowRef> rows;
      for (int32_t r = 0; r < count; ++r)
        rows.push_back({r * 48, static_cast<int32_t>((count - 1 - r) * kWidth)});
      const std::array<RowClass, 2> classes = {RowClass{0, count / 3, 2, 3},
                                               RowClass{count / 3, count, 0, 2}};
      for (const float* bias : {static_cast<const float*>(nullptr), biases.data()}) {
        std::vector<float> together(static_cast<size_t>(count * kWidth), -1.0f), alone = together;
        PanelTile tile{x.data(),    weights.data(),  bias,           together.data(),
                       rows.data(), segments.data(), classes.data(), classes.size()};
        panel_tile(tile, panels, kStride);
        for (int64_t q = 0; q < panels; ++q) {
          tile.panel = weights.data() + q * kStride;
          tile.bias = bias == nullptr ? nullptr : bias + q * kPanel;
          tile.out = alone.data() + q * kPanel;
          panel_tile(tile, 1, kStride);
        }
        EXPECT_TRUE(same_bits(together, alone)) << panels << " panels, " << count << " rows";
      }
    }
}

// Packed panels and columns of rows, any number of panels of the gradient, sums that go on.
TEST_P(PanelKernel, outer_products_of_many_panels_have_the_bits_of_one_and_one) {
  constexpr int64_t kPositions = 41, kPanelsOfX = 3;
  const int64_t rows = outer_rows(), panel_sums = rows * kPanel;
  const std::array<ops::Run, 2> runs = {ops::Run{0, 2, 30}, {31, 35, 6}};
  for (int64_t gs = 1; gs <= 7; ++gs)
    for (const bool as_rows : {false, true}) {
      const int64_t x_step = as_rows ? kPanelsOfX * rows + 5 : rows;
      const int64_t g_step = as_rows ? gs * kPanel + 16 : kPanel;
      const auto x = drawn_floats(4, kPositions * kPanelsOfX * (x_step + 1));
      const auto g = drawn_floats(5, kPositions * gs * (g_step + 1));
      const OuterPanels all_x{x.data(), x_step, as_rows ? rows : kPositions * rows, kPanelsOfX};
      const OuterPanels all_g{g.data(), g_step, as_rows ? kPanel : kPositions * kPanel, gs};
      const int64_t stride = kPanelsOfX * panel_sums + 16;
      const auto before = drawn_floats(6, gs * stride);
      std::vector<float> together(before), alone(before);
      outer_tile(all_x, all_g, runs.data(), runs.size(), together.data(), stride);
      for (int64_t o = 0; o < gs; ++o)
        for (int64_t q = 0; q < kPanelsOfX; ++q)
          outer_tile({x.data() + q * all_x.stride, x_step, 0, 1},
                     {g.data() + o * all_g.stride, g_step, 0, 1}, runs.data(), runs.size(),
                     alone.data() + o * stride + q * panel_sums, 0);
      EXPECT_TRUE(same_bits(together, alone)) << gs << " panels, as rows: " << as_rows;
    }
}

}  // namespace
}  // namespace tri::ops
