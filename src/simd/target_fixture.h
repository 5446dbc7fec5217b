#pragma once
// Room: simd, for tests only. A GoogleTest fixture whose every test runs once per SIMD target that
// this machine can run, and fails unless that target is the one that runs.
//
//   class AddTest : public simd::TargetTest {};
//   TEST_P(AddTest, Sums) { ... }
//   TRI_FOR_EACH_TARGET(AddTest);
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "simd/target.h"

namespace tri::simd {

class TargetTest : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(force_target(GetParam()).has_value());
    ASSERT_EQ(active_target(), GetParam());
  }
  void TearDown() override { ASSERT_TRUE(force_target("auto").has_value()); }
};

inline std::string target_test_name(const testing::TestParamInfo<std::string_view>& target) {
  return std::string(target.param);
}

}  // namespace tri::simd

#define TRI_FOR_EACH_TARGET(fixture)                                                             \
  INSTANTIATE_TEST_SUITE_P(Targets, fixture, testing::ValuesIn(::tri::simd::runnable_targets()), \
                           ::tri::simd::target_test_name)
