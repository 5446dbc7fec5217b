#include "control/precision/loss_scale.h"

#include <gtest/gtest.h>

namespace tri::control {
namespace {

TEST(LossScale, HalvesOnFailureDownToTheFloor) {
  const LossScaleSettings settings{.on = true, .first = 4};
  LossScale state = first_scale(settings);
  EXPECT_EQ(state.scale, 4);
  EXPECT_TRUE(follow(settings, state, true, 1, 8));
  EXPECT_TRUE(follow(settings, state, true, 2, 16));
  EXPECT_EQ(state.scale, 1);
  EXPECT_FALSE(follow(settings, state, true, 3, 24));
  EXPECT_EQ(state.scale, 1);
  EXPECT_EQ(state.skipped, 3u);
}

TEST(LossScale, DoublesAfterGoodStepsCountedFromTheLastFailure) {
  const LossScaleSettings settings{.on = true, .first = 1024, .growth_steps = 10};
  LossScale state = first_scale(settings);
  for (uint64_t step = 1; step < 5; ++step) EXPECT_FALSE(follow(settings, state, false, step, 0));
  EXPECT_TRUE(follow(settings, state, true, 5, 0));
  for (uint64_t step = 6; step < 15; ++step) EXPECT_FALSE(follow(settings, state, false, step, 0));
  EXPECT_TRUE(follow(settings, state, false, 15, 0));
  EXPECT_EQ(state.scale, 1024);
}

TEST(LossScale, DoublesAfterAnEpochOfSamples) {
  const LossScaleSettings settings{.on = true, .growth_steps = 0, .growth_samples = 100};
  LossScale state = first_scale(settings);
  EXPECT_FALSE(follow(settings, state, false, 1, 96));
  EXPECT_TRUE(follow(settings, state, false, 2, 192));
  EXPECT_EQ(state.scale, 131072);
  EXPECT_FALSE(follow(settings, state, false, 3, 288));
}

TEST(LossScale, OffStaysAtOneButCounts) {
  const LossScaleSettings settings;
  LossScale state = first_scale(settings);
  EXPECT_FALSE(follow(settings, state, true, 1, 8));
  EXPECT_FALSE(follow(settings, state, false, 5000, 40000));
  EXPECT_EQ(state.scale, 1);
  EXPECT_EQ(state.skipped, 1u);
}

}  // namespace
}  // namespace tri::control
