#include "base/check.h"

#include <gtest/gtest.h>

#include "base/clock.h"

namespace tri::base {
namespace {

TEST(CheckDeathTest, NamesPlaceConditionAndValues) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const int n = -3;
  EXPECT_DEATH(TRI_CHECK(n > 0, "n = {}", n), "check_test.cpp:[0-9]+: broken rule: n > 0: n = -3");
  EXPECT_DEATH(TRI_CHECK(n > 0), "broken rule: n > 0");
}

TEST(Check, EvaluatesItsConditionOnce) {
  int calls = 0;
  TRI_CHECK(++calls > 0);
  EXPECT_EQ(calls, 1);
}

TEST(Clock, NeverGoesBack) {
  int64_t before = now_ns();
  for (int i = 0; i < 1000; ++i) {
    const int64_t now = now_ns();
    ASSERT_GE(now, before);
    before = now;
  }
}

TEST(Clock, StopwatchCountsFromItsStart) {
  Stopwatch watch;
  const int64_t start = now_ns();
  while (now_ns() - start < 100'000) {
  }
  EXPECT_GE(watch.elapsed_ns(), 100'000);
  EXPECT_GE(watch.seconds(), 1e-4);
  const int64_t before_restart = now_ns();
  watch.restart();
  const int64_t elapsed = watch.elapsed_ns();
  EXPECT_LE(elapsed, now_ns() - before_restart);
}

}  // namespace
}  // namespace tri::base
