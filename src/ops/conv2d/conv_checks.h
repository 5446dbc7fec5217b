#pragma once
// Room: ops, for tests only. What the tests of convolutions share.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "ops/conv2d/outer_conv.h"
#include "ops/rows/rows.h"

namespace tri::ops {

inline Stored whole_tensor(const void* data, Format format, const Shape& s) {
  return {data, format, s.c, s.c, s.pixels()};
}

// Both operands lie in [-1, 1]: each of K fused steps adds at most half an ulp of a partial sum
// that K bounds. The typical error is sqrt(K) smaller; 4 sqrt(K) eps sqrt(K) covers all sizes used.
inline double conv_tolerance(int64_t products) {
  return 4.0 * static_cast<double>(products) * 0x1p-24;
}

inline void expect_near(const std::vector<double>& want, const std::vector<float>& got,
                        double bound, const std::string& what) {
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(want[i], double{got[i]}, bound) << what << " at " << i;
}

// For INSTANTIATE_TEST_SUITE_P: the cases of a list that a test is for, and what they are called.
template <class Case, class Fits>
std::vector<Case> those(const std::vector<Case>& all, Fits fits) {
  std::vector<Case> some;
  std::copy_if(all.begin(), all.end(), std::back_inserter(some), fits);
  return some;
}
inline constexpr auto kCaseName = [](const auto& test) { return test.param.name; };

// Keeps the gradient, and counts how often each part of it was handed over.
struct Keep final : GradConsumer {
  explicit Keep(int64_t count) : grad(static_cast<size_t>(count), NAN), taken(grad.size(), 0) {}
  void consume(size_t, int64_t begin, int64_t count, const float* from) noexcept override {
    EXPECT_EQ(begin % 32, 0);
    for (int64_t i = 0; i < count; ++i) {
      grad[static_cast<size_t>(begin + i)] = from[i];
      ++taken[static_cast<size_t>(begin + i)];
    }
  }
  void expect(float most) noexcept override { bound = most; }
  std::vector<float> grad;
  std::vector<int> taken;
  float bound = -1;  // as expect() was told
};

}  // namespace tri::ops
