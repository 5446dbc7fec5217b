// Quality of the counter-based noise. All inputs are fixed, so these tests cannot flicker; the
// limits are what a truly random source passes but for one time in about 10^6.
#include "numeric/noise.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <vector>

namespace tri::numeric {
namespace {

constexpr uint32_t kWords = 1 << 18;
constexpr double kSigmas = 4.9;  // two-sided 10^-6

// Streams as training draws them: neighbouring steps and tensors, and degenerate seeds.
std::vector<NoiseKey> keys() {
  return {noise_key(0, 0, 0), noise_key(0, 0, 1), noise_key(0, 1, 0), noise_key(1, 0, 0),
          noise_key(~uint64_t{0}, 1000, 60)};
}

TEST(Noise, EachBitIsFair) {
  for (const NoiseKey key : keys()) {
    std::array<uint32_t, 32> ones = {};
    for (uint32_t i = 0; i < kWords; ++i) {
      for (int b = 0; b < 32; ++b) ones[static_cast<size_t>(b)] += noise(key, i) >> b & 1;
    }
    for (const uint32_t count : ones) {
      EXPECT_NEAR(count, kWords / 2.0, kSigmas * std::sqrt(kWords / 4.0));
    }
  }
}

// Upper and lower bytes, as the rounding of every format draws from the top.
TEST(Noise, BytesPassChiSquare) {
  for (const NoiseKey key : keys()) {
    for (const int shift : {24, 16, 8, 0}) {
      std::array<double, 256> bins = {};
      for (uint32_t i = 0; i < kWords; ++i) bins[noise(key, i) >> shift & 255] += 1;
      double chi2 = 0;
      for (const double count : bins) {
        chi2 += (count - kWords / 256.0) * (count - kWords / 256.0) / (kWords / 256.0);
      }
      EXPECT_NEAR(chi2, 255.0, kSigmas * std::sqrt(2 * 255.0)) << "bits from " << shift;
    }
  }
}

// Correlation of the words at two places, in standard deviations of an ideal source.
double correlation(auto first, auto second) {
  double sum = 0;
  for (uint32_t i = 0; i < kWords; ++i) {
    sum += (static_cast<double>(first(i)) * 0x1p-32 - 0.5) *
           (static_cast<double>(second(i)) * 0x1p-32 - 0.5);
  }
  return sum / kWords * 12 * std::sqrt(static_cast<double>(kWords));
}

TEST(Noise, NeighboursAndStreamsDoNotFollowEachOther) {
  for (const NoiseKey key : keys()) {
    const auto words = [key](uint32_t i) { return noise(key, i); };
    for (const uint32_t lag : {1u, 2u, 4u, 8u, 16u, 32u, 1024u, 65536u}) {
      EXPECT_LE(std::fabs(correlation(words, [&](uint32_t i) { return words(i + lag); })), kSigmas)
          << "lag " << lag;
    }
    for (const NoiseKey other : keys()) {
      if (other == key) continue;
      EXPECT_LE(std::fabs(correlation(words, [&](uint32_t i) { return noise(other, i); })),
                kSigmas);
    }
  }
}

// One flipped input bit flips each output bit about half of the time.
TEST(Noise, Avalanches) {
  const NoiseKey key = noise_key(42, 1, 2);
  constexpr uint32_t kTrials = 1 << 12;
  for (int in = 0; in < 32; ++in) {
    uint64_t flipped = 0;
    for (uint32_t i = 0; i < kTrials; ++i) {
      const uint32_t index = i * 0x9e3779b9u;
      flipped +=
          static_cast<uint64_t>(std::popcount(noise(key, index) ^ noise(key, index ^ 1u << in)));
    }
    // A sum of 32 fair bits has variance 8; five deviations of the mean over all trials.
    EXPECT_NEAR(static_cast<double>(flipped) / kTrials, 16.0, 5 * std::sqrt(8.0 / kTrials))
        << "input bit " << in;
  }
}

TEST(Noise, KeysDependOnEveryPart) {
  const NoiseKey key = noise_key(1, 2, 3);
  EXPECT_NE(key, noise_key(2, 1, 3));
  EXPECT_NE(key, noise_key(1, 3, 2));
  EXPECT_NE(key, noise_key(1, 2, 4));
  EXPECT_EQ(key, noise_key(1, 2, 3));
}

}  // namespace
}  // namespace tri::numeric
