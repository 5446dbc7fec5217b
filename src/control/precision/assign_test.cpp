#include "control/precision/assign.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace tri::control {
namespace {

using Kind = AssignOp::Kind;

// 4 x 4 x 1 -> conv 3 x 3 to 2 channels -> relu -> linear to 3, without biases.
std::vector<AssignOp> plain_network() {
  return {{.kind = Kind::kInput, .y_elements = 16},
          {Kind::kGemm, 18, 32, {0}, 0, true},
          {Kind::kOther, 0, 32, {1}, 0, false},
          {Kind::kGemm, 96, 3, {2}, 1, true}};
}

// 2 x 2 x 1 -> conv, norm, relu -> conv, norm, add -> pool -> linear.
std::vector<AssignOp> residual_network() {
  return {{.kind = Kind::kInput, .y_elements = 4}, {Kind::kGemm, 18, 8, {0}, 0, true},
          {Kind::kOther, 4, 8, {1}, 0, false},     {Kind::kOther, 0, 8, {2}, 0, false},
          {Kind::kGemm, 36, 8, {3}, 1, true},      {Kind::kOther, 4, 8, {4}, 1, false},
          {Kind::kOther, 0, 8, {5, 3}, 1, true},   {Kind::kOther, 0, 2, {6}, 1, true},
          {Kind::kGemm, 4, 2, {7}, 2, true}};
}

std::vector<int> low_outputs(const Assignment& assignment) {
  std::vector<int> low;
  for (size_t i = 0; i < assignment.size(); ++i) {
    if (assignment[i].y) low.push_back(static_cast<int>(i));
    EXPECT_EQ(assignment[i].y, assignment[i].gy);
  }
  return low;
}

TEST(Assign, GroupsOfThePlainNetworkByHand) {
  const auto ops = plain_network();
  EXPECT_EQ(groups_of(ops), (std::vector{0, 1, 1, 2}));
  EXPECT_EQ(parameter_groups_of(ops), (std::vector{0, 0, 1, 1}));
  // Input: 2 * 16, and 2 * 18 of the convolution that reads it. Convolution and relu: Y and GY of
  // 32 each, twice, and 2 * 96 of the linear layer. Linear: Y and GY of 3.
  EXPECT_EQ(group_elements(ops, 2), (std::vector<int64_t>{32 + 36, 256 + 192, 12}));
}

TEST(Assign, DemotesThePlainNetworkBySizeUntilTheShareIsReached) {
  const auto ops = plain_network();
  // Shares: 0.129, 0.848, 0.023.
  const Assignment most = assign(ops, 2, {.low_share = 0.8});
  EXPECT_EQ(low_outputs(most), (std::vector{1, 2}));
  EXPECT_FALSE(most[1].p);
  EXPECT_TRUE(most[3].p);
  const Assignment more = assign(ops, 2, {.low_share = 0.85});
  EXPECT_EQ(low_outputs(more), (std::vector{0, 1, 2}));
  EXPECT_TRUE(more[1].p);
  const Assignment small = assign(ops, 2, {.low_share = 0.1, .order = AssignmentOrder::kAscending});
  EXPECT_EQ(low_outputs(small), (std::vector{0, 3}));
}

TEST(Assign, BitsOfThePlainNetworkByHand) {
  const auto ops = plain_network();
  EXPECT_EQ(tensor_bits(ops, 2, Assignment(4)), 528u * 16);
  const Assignment most = assign(ops, 2, {.low_share = 0.8});
  // 256 elements of Y and GY and 96 of P save 8 bits each; GP stays.
  EXPECT_EQ(tensor_bits(ops, 2, most), 528u * 16 - (256 + 96) * 8);
  EXPECT_DOUBLE_EQ(low_ratio(ops, 2, most), 2.0 * (256 + 96) * 8 / (528 * 16));
  EXPECT_EQ(low_ratio(ops, 2, Assignment(4)), 0);
}

TEST(Assign, TheResidualNetworkByHand) {
  const auto ops = residual_network();
  EXPECT_EQ(groups_of(ops), (std::vector{0, 1, 1, 1, 2, 2, 2, 2, 3}));
  EXPECT_EQ(group_elements(ops, 1), (std::vector<int64_t>{40, 48 + 8 + 72, 52 + 8 + 8, 4}));
  EXPECT_EQ(group_elements(ops, 100), (std::vector<int64_t>{400 + 36, 4800 + 80, 5200 + 16, 400}));
  // The order depends on the batch: with 1 sample the weights of group 1 lead, with 100 the
  // outputs of group 2.
  EXPECT_EQ(low_outputs(assign(ops, 1, {.low_share = 0.4})), (std::vector{1, 2, 3}));
  EXPECT_EQ(low_outputs(assign(ops, 100, {.low_share = 0.4})), (std::vector{4, 5, 6, 7}));
}

TEST(Assign, RowsOfTheResidualNetworkByHand) {
  const auto ops = residual_network();
  const PrecisionTable table = table_of(ops, assign(ops, 1, {.low_share = 0.4}), 3);
  constexpr Format kHigh = Format::kF16e6, kForward = Format::kF8e4b4, kBackward = Format::kF8e5;
  EXPECT_EQ(table[0], (PrecisionRow{kHigh, kForward, kBackward, kHigh}));
  EXPECT_EQ(table[1], (PrecisionRow{kForward, kHigh, kHigh, kHigh}));
  EXPECT_EQ(table[2], (PrecisionRow{kHigh, kHigh, kHigh, kHigh}));
}

TEST(Assign, OnePromotedTensorLiftsItsRowAlone) {
  const auto ops = residual_network();
  Assignment all = assign(ops, 1, {.low_share = 1});
  all[6].y = false;  // the sum
  const PrecisionTable table = table_of(ops, all, 3);
  EXPECT_EQ(table[1].y, Format::kF16e6);
  EXPECT_EQ(table[1].p, Format::kF8e4b4);
  EXPECT_EQ(table[1].gy, Format::kF8e5);
  EXPECT_EQ(table[0].y, Format::kF8e4b4);
}

TEST(Assign, ZeroIsAllHighAndOneIsAllLow) {
  const auto ops = residual_network();
  EXPECT_EQ(assign(ops, 7, {.low_share = 0}), Assignment(ops.size()));
  EXPECT_EQ(assign(ops, 7, {.low_share = 1}), Assignment(ops.size(), {true, true, true}));
}

TEST(Assign, EveryOrderReachesItsShareAndNoGroupMore) {
  const auto ops = residual_network();
  const std::vector<int64_t> sizes = group_elements(ops, 3);
  const std::vector<int> groups = groups_of(ops);
  const auto all = static_cast<double>(std::reduce(sizes.begin(), sizes.end()));
  for (const auto order :
       {AssignmentOrder::kDescending, AssignmentOrder::kAscending, AssignmentOrder::kRandom}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      for (const double share : {0.1, 0.35, 0.6, 0.9}) {
        const Assignment made = assign(ops, 3, {.low_share = share, .order = order, .seed = seed});
        std::vector<int64_t> low;
        for (size_t g = 0; g < sizes.size(); ++g) {
          const auto member = std::ranges::find(groups, static_cast<int>(g)) - groups.begin();
          if (made[static_cast<size_t>(member)].y) low.push_back(sizes[g]);
        }
        const auto sum = static_cast<double>(std::reduce(low.begin(), low.end()));
        EXPECT_GE(sum, share * all);
        EXPECT_LT(sum - static_cast<double>(std::ranges::max(low)), share * all);
      }
    }
  }
}

TEST(Assign, Hfp8LowersOperandsOfInnerGemmsOnly) {
  const Assignment made = assign_hfp8(residual_network());
  for (size_t i = 0; i < made.size(); ++i) {
    EXPECT_EQ(made[i].p, i == 4) << i;
    EXPECT_EQ(made[i].gy, i == 4) << i;
    EXPECT_EQ(made[i].y, i == 3) << i;  // what feeds the second convolution
  }
}

}  // namespace
}  // namespace tri::control
