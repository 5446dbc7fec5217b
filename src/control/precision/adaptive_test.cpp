#include "control/precision/adaptive.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tri::control {
namespace {

Signals window_of(std::initializer_list<double> spreads) {
  Signals window{.steps = 1, .batch = 96, .rate = 0.1};
  for (const double spread : spreads) {
    window.layers.push_back({.spread = spread, .y_amax = 1, .gy_amax = 1});
  }
  return window;
}

std::vector<Level> wishes(std::span<const AdaptiveLayer> layers) {
  std::vector<Level> list;
  for (const AdaptiveLayer& layer : layers) list.push_back(layer.wish);
  return list;
}

TEST(Adaptive, MeasuresAgainstTheMedianLayer) {
  std::vector<AdaptiveLayer> layers(5);
  const AdaptiveSettings settings{.tau_low = 0.1, .tau_high = 10};
  weigh(settings, layers, window_of({0.05e-6, 1e-6, 1e-6, 5e-6, 10e-6}));
  using enum Level;
  EXPECT_EQ(wishes(layers), (std::vector{kFp16, kBf16, kBf16, kBf16, kFp32}));
}

TEST(Adaptive, AbsoluteRuleIsTheVarianceAtTheFirstBatch) {
  std::vector<AdaptiveLayer> layers(3);
  const AdaptiveSettings settings{
      .relative = false, .tau_low = 1e-4, .tau_high = 1e-2, .first_batch = 32};
  // Variances of 0.9e-4, 1e-4 and 1e-2 at a batch of 32.
  weigh(settings, layers, window_of({32 * 0.9e-4, 32 * 1e-4 * (1 + 1e-9), 32 * 1e-2}));
  using enum Level;
  EXPECT_EQ(wishes(layers), (std::vector{kFp16, kBf16, kFp32}));
}

TEST(Adaptive, SmoothsWithBeta) {
  std::vector<AdaptiveLayer> layers(1);
  const AdaptiveSettings settings{.beta = 0.75};
  weigh(settings, layers, window_of({8}));
  EXPECT_EQ(layers[0].spread, 8);
  weigh(settings, layers, window_of({4}));
  EXPECT_EQ(layers[0].spread, 7);
}

TEST(Adaptive, AThresholdIsLeftByAMarginBeforeALayerGoesBack) {
  const AdaptiveSettings settings{.beta = 0, .tau_low = 0.1, .tau_high = 10, .margin = 2};
  std::vector<AdaptiveLayer> layers(3);
  const auto wish_at = [&](Level level, double value) {
    layers[0].level = level;
    weigh(settings, layers, window_of({value, 1, 1}));
    return layers[0].wish;
  };
  using enum Level;
  EXPECT_EQ(wish_at(kFp32, 6), kFp32);
  EXPECT_EQ(wish_at(kBf16, 6), kBf16);
  EXPECT_EQ(wish_at(kFp32, 4.9), kBf16);
  EXPECT_EQ(wish_at(kFp16, 0.15), kFp16);
  EXPECT_EQ(wish_at(kBf16, 0.15), kBf16);
  EXPECT_EQ(wish_at(kFp16, 0.21), kBf16);
}

TEST(Adaptive, ValuesLostToZeroKeepALayerOutOfFp16ForGood) {
  const AdaptiveSettings settings{.beta = 0, .tau_low = 0.1, .tau_high = 10};
  std::vector<AdaptiveLayer> layers(3);
  layers[0].level = Level::kFp16;
  Signals window = window_of({0.01, 1, 1});
  window.layers[0].gy_underflow = 0.01;
  weigh(settings, layers, window);
  EXPECT_EQ(must(settings, layers[0]), Level::kFp16);  // 1 % is allowed
  window.layers[0].gy_underflow = 0.011;
  weigh(settings, layers, window);
  EXPECT_EQ(must(settings, layers[0]), Level::kBf16);
}

TEST(Adaptive, CurvaturePromotesAboveTwoOverTheRateAndEndsAfterTwoCalmEstimates) {
  const AdaptiveSettings settings;
  std::vector<AdaptiveLayer> layers(1);
  const auto after = [&](double lambda) {
    const std::vector<double> estimate{lambda};
    weigh_curvature(settings, layers, estimate, 0.1);
    return must(settings, layers[0]);
  };
  using enum Level;
  EXPECT_EQ(after(20), kFp16);  // not above
  EXPECT_EQ(after(20.1), kFp32);
  EXPECT_EQ(after(15.9), kFp32);
  EXPECT_EQ(after(16.1), kFp32);  // not calm: counts anew
  EXPECT_EQ(after(15.9), kFp32);
  EXPECT_EQ(after(15.9), kFp16);
  EXPECT_EQ(after(1000), kFp32);
}

TEST(Adaptive, ScaleIsAPowerOfTwoThatStaysWhileItIsGoodEnough) {
  for (const double amax : {1e-30, 3e-7, 0.02, 1.0, 1.99, 700.0, 1e9}) {
    const double scale = guard_scale(Format::kF16, amax, 1);
    int exponent = 0;
    EXPECT_EQ(std::frexp(scale, &exponent), 0.5) << amax;
    EXPECT_GE(amax * scale, 0x1p7) << amax;
    EXPECT_LT(amax * scale, 0x1p14) << amax;
    EXPECT_EQ(guard_scale(Format::kF16, amax * 4, scale), scale) << amax;
    EXPECT_EQ(guard_scale(Format::kF16, amax / 4, scale), scale) << amax;
  }
  EXPECT_EQ(guard_scale(Format::kF16, 0, 8), 8);
}

}  // namespace
}  // namespace tri::control
