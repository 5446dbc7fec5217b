// Against double precision, on every runnable target.
#include <cstddef>

namespace tri::simd {
// One of these per function under test, for whole arrays.
using MathFn = void (*)(const float* src, float* dst, size_t n);
}  // namespace tri::simd

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/math_test.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "simd/math_arrays-inl.h"

#if HWY_ONCE
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "simd/target_fixture.h"

namespace tri::simd {

HWY_EXPORT(exp_array);
HWY_EXPORT(sigmoid_array);
HWY_EXPORT(silu_array);
HWY_EXPORT(silu_derivative_array);
HWY_EXPORT(half_sigmoid_array);
HWY_EXPORT(half_silu_array);
HWY_EXPORT(half_silu_derivative_array);
HWY_EXPORT(silu_pair_array);
HWY_EXPORT(half_silu_pair_array);

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Every sign and exponent with 32 mantissas, and 2^18 steps through [-110, 110].
std::vector<float> samples() {
  std::vector<float> out;
  for (uint32_t top = 0; top < 512; ++top) {
    if ((top & 255) == 255) continue;
    for (uint32_t m = 0; m < 32; ++m) {
      out.push_back(std::bit_cast<float>(top << 23 | (m * 0x04f1bcd & 0x7fffff)));
    }
  }
  constexpr int kSteps = 1 << 18;
  for (int i = 0; i < kSteps; ++i) out.push_back(-110.0f + 220.0f * static_cast<float>(i) / kSteps);
  while (out.size() % 64 != 0) out.push_back(0.0f);
  return out;
}

// Distance in units of the last fp32 place of the true value.
double ulps(float got, double want) {
  const double magnitude = std::fabs(want);
  if (magnitude > std::numeric_limits<float>::max()) return got == kInfinity ? 0.0 : 1e9;
  const int exponent = magnitude < 0x1p-126 ? -126 : std::ilogb(magnitude);
  return std::fabs(static_cast<double>(got) - want) / std::ldexp(1.0, exponent - 23);
}

double exact_sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double exact_derivative(double x) {
  const double s = exact_sigmoid(x);
  return s + x * s * exact_sigmoid(-x);
}

std::vector<float> run(MathFn fn, const std::vector<float>& src) {
  std::vector<float> dst(src.size());
  fn(src.data(), dst.data(), src.size());
  return dst;
}

// The values at inf, -inf and NaN.
std::vector<float> at_the_ends(MathFn fn) {
  std::vector<float> src(64, 0.0f);
  src[0] = kInfinity;
  src[1] = -kInfinity;
  src[2] = kNan;
  std::vector<float> out = run(fn, src);
  out.resize(3);
  return out;
}

class MathTest : public TargetTest {};
TRI_FOR_EACH_TARGET(MathTest);

TEST_P(MathTest, ExpIsWithinOneAndAHalfUlp) {
  const std::vector<float> x = samples();
  const std::vector<float> got = run(HWY_DYNAMIC_DISPATCH(exp_array), x);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double error = ulps(got[i], std::exp(static_cast<double>(x[i])));
    ASSERT_LE(error, 1.5) << "exp(" << x[i] << ") = " << got[i];
    worst = std::max(worst, error);
  }
  RecordProperty("worst_ulp", std::to_string(worst));
  const std::vector<float> ends = at_the_ends(HWY_DYNAMIC_DISPATCH(exp_array));
  EXPECT_EQ(ends[0], kInfinity);
  EXPECT_EQ(ends[1], 0.0f);
  EXPECT_TRUE(std::isnan(ends[2]));
}

TEST_P(MathTest, SigmoidIsWithinThreeUlp) {
  const std::vector<float> x = samples();
  const std::vector<float> got = run(HWY_DYNAMIC_DISPATCH(sigmoid_array), x);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = exact_sigmoid(x[i]);
    if (want < 0x1.0001p-126) {
      ASSERT_LE(got[i], 0x1.0001p-126f) << x[i];
      continue;
    }
    const double error = ulps(got[i], want);
    ASSERT_LE(error, 3.0) << "sigmoid(" << x[i] << ") = " << got[i];
    worst = std::max(worst, error);
  }
  RecordProperty("worst_ulp", std::to_string(worst));
  const std::vector<float> ends = at_the_ends(HWY_DYNAMIC_DISPATCH(sigmoid_array));
  EXPECT_EQ(ends[0], 1.0f);
  EXPECT_EQ(ends[1], 0.0f);
  EXPECT_TRUE(std::isnan(ends[2]));
}

TEST_P(MathTest, SiluIsWithinFourUlp) {
  const std::vector<float> x = samples();
  const std::vector<float> got = run(HWY_DYNAMIC_DISPATCH(silu_array), x);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = static_cast<double>(x[i]) * exact_sigmoid(x[i]);
    if (exact_sigmoid(x[i]) < 0x1.0001p-126) {
      ASSERT_LE(std::fabs(got[i]), 0x1p-119f) << x[i];
      continue;
    }
    const double error = ulps(got[i], want);
    ASSERT_LE(error, 4.0) << "silu(" << x[i] << ") = " << got[i];
    worst = std::max(worst, error);
  }
  RecordProperty("worst_ulp", std::to_string(worst));
  const std::vector<float> ends = at_the_ends(HWY_DYNAMIC_DISPATCH(silu_array));
  EXPECT_EQ(ends[0], kInfinity);
  EXPECT_EQ(ends[1], 0.0f);
  EXPECT_TRUE(std::isnan(ends[2]));
}

TEST_P(MathTest, SiluDerivativeIsWithinItsBound) {
  const std::vector<float> x = samples();
  const std::vector<float> got = run(HWY_DYNAMIC_DISPATCH(silu_derivative_array), x);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::fabs(x[i]) > 1000.0f ? (x[i] > 0 ? 1.0 : 0.0) : exact_derivative(x[i]);
    const double error = std::fabs(static_cast<double>(got[i]) - want);
    ASSERT_LE(error, 0x1p-21) << "silu'(" << x[i] << ") = " << got[i];
    worst = std::max(worst, error);
  }
  RecordProperty("worst", std::to_string(worst * 0x1p24));
  const std::vector<float> ends = at_the_ends(HWY_DYNAMIC_DISPATCH(silu_derivative_array));
  EXPECT_EQ(ends[0], 1.0f);
  EXPECT_EQ(ends[1], 0.0f);
  EXPECT_TRUE(std::isnan(ends[2]));
}

// Below 2^-126 fp32 has fewer bits than the bound asks for.
TEST_P(MathTest, SigmoidAndSiluOfNumbersFromHalfAreWithinTheirBound) {
  const std::vector<float> x = samples();
  const std::vector<float> sigmoids = run(HWY_DYNAMIC_DISPATCH(half_sigmoid_array), x);
  const std::vector<float> silus = run(HWY_DYNAMIC_DISPATCH(half_silu_array), x);
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = exact_sigmoid(x[i]);
    if (want < 0x1.0001p-126) {
      ASSERT_LE(sigmoids[i], 0x1.001p-126f) << x[i];
      ASSERT_LE(std::fabs(silus[i]), 0x1p-119f) << x[i];
      continue;
    }
    ASSERT_LE(std::fabs(double{sigmoids[i]} - want), 0x1p-17 * want) << x[i];
    const double product = double{x[i]} * want;
    if (std::fabs(product) < 0x1p-126) continue;
    ASSERT_LE(std::fabs(double{silus[i]} - product), 0x1p-17 * std::fabs(product)) << x[i];
  }
  const std::vector<float> s = at_the_ends(HWY_DYNAMIC_DISPATCH(half_sigmoid_array));
  EXPECT_EQ(s[0], 1.0f);
  EXPECT_EQ(s[1], 0.0f);
  EXPECT_TRUE(std::isnan(s[2]));
  const std::vector<float> p = at_the_ends(HWY_DYNAMIC_DISPATCH(half_silu_array));
  EXPECT_EQ(p[0], kInfinity);
  EXPECT_EQ(p[1], 0.0f);
  EXPECT_TRUE(std::isnan(p[2]));
}

TEST_P(MathTest, SiluDerivativeOfNumbersFromHalfIsWithinItsBound) {
  const std::vector<float> x = samples();
  const std::vector<float> got = run(HWY_DYNAMIC_DISPATCH(half_silu_derivative_array), x);
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = std::fabs(x[i]) > 1000.0f ? (x[i] > 0 ? 1.0 : 0.0) : exact_derivative(x[i]);
    ASSERT_LE(std::fabs(double{got[i]} - want), 0x1p-16) << "silu'(" << x[i] << ") = " << got[i];
  }
  const std::vector<float> ends = at_the_ends(HWY_DYNAMIC_DISPATCH(half_silu_derivative_array));
  EXPECT_EQ(ends[0], 1.0f);
  EXPECT_EQ(ends[1], 0.0f);
  EXPECT_TRUE(std::isnan(ends[2]));
}

TEST_P(MathTest, SiluWithItsDerivativeHasTheBitsOfEach) {
  std::vector<float> x = samples();
  x[0] = kInfinity;
  x[1] = -kInfinity;
  const auto expect_both = [&x](MathFn pair, MathFn value, MathFn slope) {
    std::vector<float> both(2 * x.size());
    pair(x.data(), both.data(), x.size());
    const std::vector<float> values = run(value, x), slopes = run(slope, x);
    EXPECT_TRUE(std::equal(values.begin(), values.end(), both.begin()));
    EXPECT_TRUE(std::equal(slopes.begin(), slopes.end(), both.begin() + std::ssize(values)));
  };
  expect_both(HWY_DYNAMIC_DISPATCH(silu_pair_array), HWY_DYNAMIC_DISPATCH(silu_array),
              HWY_DYNAMIC_DISPATCH(silu_derivative_array));
  expect_both(HWY_DYNAMIC_DISPATCH(half_silu_pair_array), HWY_DYNAMIC_DISPATCH(half_silu_array),
              HWY_DYNAMIC_DISPATCH(half_silu_derivative_array));
}

}  // namespace
}  // namespace tri::simd
#endif  // HWY_ONCE
