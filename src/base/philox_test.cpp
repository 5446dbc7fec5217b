#include "base/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace tri::base {
namespace {

using Words = Philox::Words;

// Random123 1.14, tests/kat_vectors, philox4x32 with 10 rounds.
static_assert(Philox::block(0, {0, 0, 0, 0}) ==
              Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
static_assert(Philox::block(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0}) ==
              Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
static_assert(Philox::block(0x299f31d0a4093822, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}) ==
              Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});

TEST(Philox, EqualsThePublishedVectorsAtRunTime) {
  volatile uint32_t zero = 0;  // keeps the compiler from folding the call
  EXPECT_EQ(Philox::block(zero, {zero, zero, zero, zero}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
}

TEST(Philox, TakesTheLowWordFirst) {
  EXPECT_EQ(Philox::block(5, 0x200000001, 0x400000003), Philox::block(5, {1, 2, 3, 4}));
}

TEST(UniformFloat, CoversTheHalfOpenUnitInterval) {
  EXPECT_EQ(uniform_float(0), 0.0f);
  EXPECT_EQ(uniform_float(0x80000000), 0.5f);
  EXPECT_EQ(uniform_float(0xffffffff), 1.0f - 0x1p-24f);
}

TEST(Stream, ReadsTheBlocksInOrder) {
  Stream stream(1, Purpose::kInit, 2, 3);
  for (uint64_t index = 0; index < 5; ++index) {
    for (const uint32_t word : stream.block(index)) EXPECT_EQ(stream.next(), word);
  }
}

TEST(Stream, DiffersInEveryPartOfItsMeaning) {
  std::set<uint32_t> first_words;
  int streams = 0;
  for (uint64_t seed : {0, 1, 2}) {
    for (uint32_t purpose = 0; purpose <= static_cast<uint32_t>(Purpose::kSynthetic); ++purpose) {
      for (uint64_t a : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32, uint64_t{1} << 63}) {
        for (uint64_t b : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32, uint64_t{1} << 63}) {
          first_words.insert(Stream(seed, static_cast<Purpose>(purpose), a, b).next());
          ++streams;
        }
      }
    }
  }
  // 384 draws of 2^32: a chance collision has probability 2e-5.
  EXPECT_EQ(first_words.size(), static_cast<size_t>(streams));
}

// A Stream's bits are part of exact resume: they may never change.
TEST(Stream, KeepsItsBits) {
  constexpr Words kKeyBlock = Philox::block(7, {9, 0, static_cast<uint32_t>(Purpose::kDropout), 0});
  constexpr uint64_t kKey = uint64_t{kKeyBlock[1]} << 32 | kKeyBlock[0];
  EXPECT_EQ(Stream(7, Purpose::kDropout, 9, 11).block(13), Philox::block(kKey, {13, 0, 11, 0}));
}

// Each cell of an even distribution over `cells` has variance draws / cells * (1 - 1 / cells);
// six sigma per cell.
void expect_even(const std::vector<int>& counts, int draws) {
  const double p = 1.0 / static_cast<double>(counts.size());
  const double bound = 6 * std::sqrt(draws * p * (1 - p));
  for (const int count : counts) EXPECT_NEAR(count, draws * p, bound);
}

TEST(Stream, UniformIsEven) {
  constexpr int kDraws = 100'000;
  Stream stream(42, Purpose::kSynthetic);
  std::vector<int> counts(16);
  for (int i = 0; i < kDraws; ++i) ++counts[static_cast<size_t>(stream.uniform() * 16)];
  expect_even(counts, kDraws);
}

TEST(Stream, BelowIsEvenAndInRange) {
  constexpr int kDraws = 30'000;
  for (const uint32_t n : {1u, 2u, 3u, 7u, 10u}) {
    Stream stream(42, Purpose::kSynthetic, n);
    std::vector<int> counts(n);
    for (int i = 0; i < kDraws; ++i) {
      const uint32_t value = stream.below(n);
      ASSERT_LT(value, n);
      ++counts[value];
    }
    expect_even(counts, kDraws);
  }
}

// n = 3 * 2^30: without rejection every third value would be met twice as often as the others.
TEST(Stream, BelowHasNoModuloBias) {
  constexpr int kDraws = 30'000;
  Stream stream(42, Purpose::kSynthetic);
  std::vector<int> counts(3);
  for (int i = 0; i < kDraws; ++i) ++counts[stream.below(3u << 30) % 3];
  expect_even(counts, kDraws);
}

TEST(Stream, NormalHasTheMomentsOfTheNormal) {
  constexpr int kPairs = 100'000;
  Stream stream(42, Purpose::kInit);
  double sum = 0, squares = 0, fourths = 0, products = 0;
  for (int i = 0; i < kPairs; ++i) {
    const auto [x, y] = stream.normal_pair();
    ASSERT_TRUE(std::isfinite(x) && std::isfinite(y));
    sum += x + y;
    squares += x * x + y * y;
    fourths += x * x * x * x + y * y * y * y;
    products += x * y;
  }
  // Var x = 1, Var x^2 = 2, Var x^4 = 105 - 9 = 96, Var xy = 1; five sigma of the mean.
  constexpr double kDraws = 2.0 * kPairs;
  EXPECT_NEAR(sum / kDraws, 0, 5 * std::sqrt(1 / kDraws));
  EXPECT_NEAR(squares / kDraws, 1, 5 * std::sqrt(2 / kDraws));
  EXPECT_NEAR(fourths / kDraws, 3, 5 * std::sqrt(96 / kDraws));
  EXPECT_NEAR(products / kPairs, 0, 5 * std::sqrt(1.0 / kPairs));
}

}  // namespace
}  // namespace tri::base
