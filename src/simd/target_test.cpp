#include "simd/target.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "simd/target_fixture.h"

namespace tri::simd {
namespace {

TEST(Target, ListsAreConsistent) {
  EXPECT_FALSE(runnable_targets().empty());
  EXPECT_EQ(active_target(), runnable_targets().front());
  EXPECT_GE(compiled_targets().size(), runnable_targets().size());
}

TEST(Target, RefusesAnUnknownName) {
  const Result<void> answer = force_target("MMX");
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, ErrorCode::kInvalid);
  EXPECT_NE(answer.error().message.find("\"MMX\""), std::string::npos);
  EXPECT_EQ(active_target(), runnable_targets().front());
}

TEST(Target, ObeysTheEnvironment) {
  const std::string_view last = runnable_targets().back();
  ASSERT_EQ(setenv("TRIACCEL_SIMD", std::string(last).c_str(), 1), 0);
  ASSERT_TRUE(force_target_from_environment().has_value());
  EXPECT_EQ(active_target(), last);
  ASSERT_EQ(setenv("TRIACCEL_SIMD", "PDP11", 1), 0);
  EXPECT_FALSE(force_target_from_environment().has_value());
  ASSERT_EQ(unsetenv("TRIACCEL_SIMD"), 0);
  ASSERT_TRUE(force_target("auto").has_value());
  EXPECT_EQ(active_target(), runnable_targets().front());
}

}  // namespace
}  // namespace tri::simd
