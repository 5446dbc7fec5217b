#include "data/sample_order.h"

#include <gtest/gtest.h>

#include <set>

namespace tri::data {
namespace {

TEST(SampleOrder, VisitsEverySampleOnceAnEpoch) {
  const auto order = SampleOrder::shuffled(13, 5);
  std::set<uint64_t> orders;
  for (uint64_t epoch = 0; epoch < 4; ++epoch) {
    std::set<uint64_t> seen;
    uint64_t code = 0;
    for (uint64_t i = 0; i < 13; ++i) {
      const Sample sample = order.at(epoch * 13 + i);
      EXPECT_EQ(sample.epoch, epoch);
      EXPECT_LT(sample.index, 13u);
      seen.insert(sample.index);
      code = code * 13 + sample.index;
    }
    EXPECT_EQ(seen.size(), 13u);
    orders.insert(code);
  }
  EXPECT_EQ(orders.size(), 4u);
}

TEST(SampleOrder, DependsOnTheSeed) {
  const auto a = SampleOrder::shuffled(1000, 1), b = SampleOrder::shuffled(1000, 2);
  int same = 0;
  for (uint64_t i = 0; i < 1000; ++i) same += a.at(i) == b.at(i);
  EXPECT_LT(same, 10);  // one is expected
}

TEST(SampleOrder, ReadsOnceInOrder) {
  const auto order = SampleOrder::once(5);
  EXPECT_EQ(order.end(), 5u);
  for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(order.at(i), (Sample{0, i}));
}

TEST(SampleOrder, NamesSamples) { EXPECT_EQ(sample_id({3, 7}), (uint64_t{3} << 40) + 7); }

}  // namespace
}  // namespace tri::data
