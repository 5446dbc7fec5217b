#include "base/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "base/draws.h"

namespace tri::base {
namespace {

std::vector<uint64_t> order(const Permutation& permutation) {
  std::vector<uint64_t> places(permutation.size());
  for (uint64_t i = 0; i < places.size(); ++i) places[i] = permutation(i);
  return places;
}

bool is_bijective(const Permutation& permutation) {
  std::vector<bool> seen(permutation.size());
  for (uint64_t i = 0; i < permutation.size(); ++i) {
    const uint64_t place = permutation(i);
    if (place >= seen.size() || seen[place]) return false;
    seen[place] = true;
  }
  return true;
}

TEST(Permutation, IsBijectiveForSmallSizes) {
  for (uint64_t n = 1; n <= 70; ++n) EXPECT_TRUE(is_bijective(Permutation(n, 1, n))) << n;
}

TEST(Permutation, IsBijectiveAroundPowersOfTwo) {
  for (uint64_t n : {255, 256, 257, 1023, 1024, 1025, 4095, 4097}) {
    EXPECT_TRUE(is_bijective(Permutation(n, 1, 0))) << n;
  }
}

TEST(Permutation, IsBijectiveForAnySeedAndEpoch) {
  Draws draw(1);
  for (int i = 0; i < 100; ++i) {
    const auto n = draw.in<uint64_t>(1, 1500);
    const uint64_t seed = draw.word(), epoch = draw.word_of_any_size();
    EXPECT_TRUE(is_bijective(Permutation(n, seed, epoch))) << n << ", " << seed << ", " << epoch;
  }
}

TEST(Permutation, StaysInRangeForHugeSizes) {
  for (const uint64_t n : {(uint64_t{1} << 40) + 1, (uint64_t{1} << 62) + 1, ~uint64_t{0}}) {
    const Permutation permutation(n, 3, 4);
    for (uint64_t i = 0; i < 100; ++i) {
      EXPECT_LT(permutation(i), n);
      EXPECT_LT(permutation(n - 1 - i), n);
      EXPECT_NE(permutation(i), permutation(n - 1 - i));
    }
  }
}

TEST(Permutation, DependsOnSeedAndEpochOnly) {
  const std::vector<uint64_t> first = order(Permutation(1000, 1, 1));
  EXPECT_EQ(first, order(Permutation(1000, 1, 1)));
  EXPECT_NE(first, order(Permutation(1000, 2, 1)));
  EXPECT_NE(first, order(Permutation(1000, 1, 2)));
}

// Two random orders agree in one place on average, with variance one.
TEST(Permutation, OrdersOfDifferentEpochsAreUnrelated) {
  constexpr int kEpochs = 64;
  int agreements = 0;
  for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const Permutation one(1000, 1, epoch);
    const Permutation other(1000, 1, epoch + 1);
    for (uint64_t i = 0; i < one.size(); ++i) agreements += one(i) == other(i);
  }
  EXPECT_NEAR(agreements, kEpochs, 6 * std::sqrt(kEpochs));
}

// Neighbours stay neighbours once per order on average, as for random orders.
TEST(Permutation, SeparatesNeighbours) {
  constexpr int kEpochs = 64;
  int together = 0;
  for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const std::vector<uint64_t> places = order(Permutation(1000, 1, epoch));
    for (size_t i = 1; i < places.size(); ++i) together += places[i] == places[i - 1] + 1;
  }
  EXPECT_NEAR(together, kEpochs, 6 * std::sqrt(kEpochs));
}

// Every sample is met in every place equally often.
TEST(Permutation, IsEvenPlaceByPlace) {
  constexpr int kEpochs = 4000;
  constexpr uint64_t kSize = 20;
  std::vector<int> counts(kSize * kSize);
  for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const Permutation permutation(kSize, 5, epoch);
    for (uint64_t i = 0; i < kSize; ++i) ++counts[i * kSize + permutation(i)];
  }
  constexpr double kP = 1.0 / kSize;
  for (const int count : counts) {
    EXPECT_NEAR(count, kEpochs * kP, 6 * std::sqrt(kEpochs * kP * (1 - kP)));
  }
}

// Pearson's chi-square over all 24 orders of 4: mean 23, variance 46; six sigma.
TEST(Permutation, IsEvenOrderByOrder) {
  constexpr int kEpochs = 4800;
  std::map<std::vector<uint64_t>, int> counts;
  for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) ++counts[order(Permutation(4, 5, epoch))];
  ASSERT_EQ(counts.size(), 24u);
  double chi_square = 0;
  for (const auto& [places, count] : counts) {
    chi_square += (count - kEpochs / 24.0) * (count - kEpochs / 24.0) / (kEpochs / 24.0);
  }
  EXPECT_LT(chi_square, 23 + 6 * std::sqrt(46));
}

}  // namespace
}  // namespace tri::base
