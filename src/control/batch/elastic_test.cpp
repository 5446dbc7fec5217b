#include "control/batch/elastic.h"

#include <gtest/gtest.h>

namespace tri::control {
namespace {

constexpr ElasticSettings kSettings{
    .unit = 32, .least = 32, .most = 256, .delta_up = 32, .delta_down = 64};

uint64_t bytes_of(int64_t batch) { return 1000 + 10 * static_cast<uint64_t>(batch); }

BatchMove move(int64_t batch, int64_t& rest, uint64_t ceiling,
               std::optional<double> noise_scale = std::nullopt) {
  return elastic_move(kSettings, batch, rest, {bytes_of(batch), ceiling, noise_scale}, bytes_of);
}

TEST(Elastic, GrowsWhileMemoryIsIdle) {
  int64_t rest = 0;
  EXPECT_EQ(move(96, rest, 100000).batch, 128);
  EXPECT_EQ(move(240, rest, 100000).batch, 256);  // up to the most
  EXPECT_EQ(move(256, rest, 100000).batch, 256);
}

TEST(Elastic, GrowsOnlyWhereThePlanStaysBelowRhoHigh) {
  int64_t rest = 0;
  // In use: 1960 of 2900, below 70 %; with 32 more 2280, below 90 %.
  EXPECT_EQ(move(96, rest, 2900).batch, 128);
  const ElasticSettings wide{
      .unit = 32, .least = 32, .most = 999 * 32, .delta_up = 96, .delta_down = 32};
  EXPECT_EQ(elastic_move(wide, 96, rest, {1960, 2900, {}}, bytes_of).batch, 96);
}

TEST(Elastic, StaysBetweenTheMarks) {
  int64_t rest = 0;
  EXPECT_EQ(move(96, rest, 2500).batch, 96);  // 78 %
}

TEST(Elastic, ShrinksAboveRhoHighAndRestsThen) {
  int64_t rest = 0;
  const BatchMove down = move(160, rest, 2800);  // 2600: 93 %
  EXPECT_EQ(down.batch, 96);
  EXPECT_FALSE(down.reason.empty());
  for (int64_t window = 0; window < kSettings.rest_windows; ++window) {
    EXPECT_EQ(move(96, rest, 100000).batch, 96);
  }
  EXPECT_EQ(move(96, rest, 100000).batch, 128);
}

TEST(Elastic, ShrinksAsFarAsTheCeilingAsks) {
  int64_t rest = 0;
  EXPECT_EQ(move(256, rest, 1700).batch, 64);
  EXPECT_EQ(move(256, rest, 500).batch, 32);  // nothing fits: the least
}

TEST(Elastic, DoesNotGrowBeyondTheNoiseScale) {
  int64_t rest = 0;
  EXPECT_EQ(move(96, rest, 100000, 95).batch, 96);
  EXPECT_EQ(move(96, rest, 100000, 97).batch, 128);
}

// What memory took comes back between the marks too, whatever the noise scale; no further.
TEST(Elastic, ReturnsToWhatWasAskedForWithinRhoHigh) {
  ElasticSettings settings = kSettings;
  settings.asked = 120;
  int64_t rest = 1;
  const auto next = [&](int64_t batch, uint64_t ceiling) {
    return elastic_move(settings, batch, rest, {bytes_of(batch), ceiling, 10}, bytes_of);
  };
  EXPECT_EQ(next(64, 2200).batch, 64);  // it rests
  // 1640 of 2200 are 75 %, with 96 images 1960: 89 %.
  const BatchMove back = next(64, 2200);
  EXPECT_EQ(back.batch, 96);
  EXPECT_EQ(back.reason, "it needs 1.9 KiB, within 90 % of 2.1 KiB again");
  EXPECT_EQ(next(64, 2150).batch, 64);   // 1960 would be 91 %
  EXPECT_EQ(next(96, 2500).batch, 120);  // to what was asked for, not beyond it
  EXPECT_EQ(next(120, 2500).batch, 120);
}

TEST(Elastic, LargestFittingIsTheLargest) {
  for (uint64_t limit = 1300; limit < 4000; limit += 7) {
    const auto found = largest_fitting(kSettings, 256, limit, bytes_of);
    int64_t expected = 0;
    for (int64_t batch = 32; batch <= 256; batch += 32) {
      if (bytes_of(batch) <= limit) expected = batch;
    }
    EXPECT_EQ(found.value_or(0), expected) << limit;
  }
}

// A ghost batch of 0 leaves sizes that are no multiples of the unit above the least.
TEST(Elastic, LargestFittingFromAnySize) {
  ElasticSettings settings = kSettings;
  settings.unit = settings.least = 40;
  for (int64_t from = 40; from <= 200; ++from) {
    for (uint64_t limit = 1300; limit < 3200; limit += 50) {
      const auto found = largest_fitting(settings, from, limit, bytes_of);
      int64_t expected = 0;
      for (int64_t batch = 40; batch <= from; batch += 40) {
        if (bytes_of(batch) <= limit) expected = batch;
      }
      if (bytes_of(from) <= limit) expected = from;
      EXPECT_EQ(found.value_or(0), expected) << from << " within " << limit;
    }
  }
}

TEST(Elastic, LeastMicrosCutsIntoGhostBatches) {
  const auto bytes = [](int64_t micros) { return uint64_t{1200} / static_cast<uint64_t>(micros); };
  EXPECT_EQ(least_micros(192, 32, 1200, bytes), 1);
  EXPECT_EQ(least_micros(192, 32, 1199, bytes), 2);
  EXPECT_EQ(least_micros(192, 32, 300, bytes), 6);  // 4 does not divide 6 ghost batches
  EXPECT_EQ(least_micros(192, 32, 199, bytes), std::nullopt);
}

}  // namespace
}  // namespace tri::control
