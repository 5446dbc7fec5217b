#include "train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tri::train {
namespace {

// Each value is a few roundings of double away from the exact one.
constexpr double kTolerance = 1e-15;

Schedule schedule(LrRule rule = LrRule::kNone) {
  return {.lr = 0.1, .warmup_samples = 100, .total_samples = 500, .rule = rule, .first_batch = 10};
}

TEST(Schedule, RisesLinearly) {
  EXPECT_EQ(schedule().shape(0), 0);
  EXPECT_EQ(schedule().shape(25), 0.25);
  EXPECT_EQ(schedule().shape(100), 1);
}

TEST(Schedule, FallsAsACosine) {
  EXPECT_NEAR(schedule().shape(200), (1 + std::sqrt(0.5)) / 2, kTolerance);
  EXPECT_NEAR(schedule().shape(300), 0.5, kTolerance);
  EXPECT_NEAR(schedule().shape(400), (1 - std::sqrt(0.5)) / 2, kTolerance);
  EXPECT_EQ(schedule().shape(500), 0);
  EXPECT_EQ(schedule().shape(1e9), 0);
}

TEST(Schedule, WorksWithoutEitherPart) {
  const Schedule no_warmup = {.lr = 1, .warmup_samples = 0, .total_samples = 10};
  EXPECT_EQ(no_warmup.shape(0), 1);
  const Schedule only_warmup = {.lr = 1, .warmup_samples = 10, .total_samples = 10};
  EXPECT_EQ(only_warmup.shape(9), 0.9);
  EXPECT_EQ(only_warmup.shape(10), 0);
}

TEST(Schedule, ReadsTheCurveInTheMiddleOfAStep) {
  EXPECT_NEAR(schedule().rate(0, 10), 0.1 * 0.05, kTolerance);
  EXPECT_NEAR(schedule().rate(295, 10), 0.1 * 0.5, kTolerance);
  EXPECT_GT(schedule().rate(490, 10), 0);
}

TEST(Schedule, FollowsTheBatch) {
  EXPECT_EQ(batch_factor(LrRule::kLinear, 40, 10), 4);
  EXPECT_EQ(batch_factor(LrRule::kSqrt, 40, 10), 2);
  EXPECT_EQ(batch_factor(LrRule::kNone, 40, 10), 1);
  EXPECT_EQ(batch_factor(LrRule::kLinear, 5, 10), 0.5);
  EXPECT_NEAR(schedule(LrRule::kLinear).rate(280, 40), 0.1 * 0.5 * 4, kTolerance);
  EXPECT_NEAR(schedule(LrRule::kSqrt).rate(280, 40), 0.1 * 0.5 * 2, kTolerance);
}

// With the linear rule the rates of a run add up to lr * integral / first_batch for any batch: the
// triangle and the half cosine, 100 / 2 + 400 / 2 samples. The midpoint rule is exact on both when
// the batch divides their lengths.
TEST(Schedule, SumsToTheSameForAnyBatch) {
  for (const int64_t batch : {1, 5, 10, 20, 50}) {
    double sum = 0;
    for (int64_t seen = 0; seen < 500; seen += batch) {
      sum += schedule(LrRule::kLinear).rate(static_cast<uint64_t>(seen), batch);
    }
    EXPECT_NEAR(sum, 0.1 * 250 / 10, 500 * kTolerance) << batch;
  }
}

TEST(Schedule, ComesFromTheConfiguration) {
  ConfigBuilder builder;
  ASSERT_TRUE(builder.set("epochs", "8"));
  ASSERT_TRUE(builder.set("warmup", "0.5"));
  ASSERT_TRUE(builder.set("lr", "0.25"));
  const Schedule made = make_schedule(builder.resolve().value().config, 1000);
  EXPECT_EQ(made.lr, 0.25);
  EXPECT_EQ(made.warmup_samples, 500);
  EXPECT_EQ(made.total_samples, 8000);
  EXPECT_EQ(made.first_batch, 96);
}

}  // namespace
}  // namespace tri::train
