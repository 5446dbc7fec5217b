#include "tri/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <type_traits>

namespace tri {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return unexpected(ErrorCode::kInvalid, "odd");
  return n / 2;
}

Result<void> even(int n) {
  if (n % 2 != 0) return unexpected(ErrorCode::kDoesNotFit, "odd");
  return {};
}

TEST(Result, HoldsAValue) {
  const Result<int> four = half(8);
  ASSERT_TRUE(four.has_value());
  EXPECT_TRUE(four);
  EXPECT_EQ(four.value(), 4);
  EXPECT_EQ(*four, 4);
  EXPECT_EQ(four.value_or(7), 4);
}

TEST(Result, HoldsAnError) {
  const Result<int> odd = half(7);
  ASSERT_FALSE(odd.has_value());
  EXPECT_FALSE(odd);
  EXPECT_EQ(odd.error().code, ErrorCode::kInvalid);
  EXPECT_EQ(odd.error().message, "odd");
  EXPECT_EQ(odd.value_or(7), 7);
}

TEST(Result, TellsAValueFromAnErrorOfTheSameType) {
  const Result<Error> value = Error{ErrorCode::kFailed, "as a value"};
  EXPECT_TRUE(value.has_value());
  const Result<Error> error = unexpected({ErrorCode::kFailed, "as an error"});
  EXPECT_FALSE(error.has_value());
}

TEST(Result, MovesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(3);
  static_assert(!std::is_copy_constructible_v<Result<std::unique_ptr<int>>>);
  Result<std::unique_ptr<int>> moved = std::move(result);
  EXPECT_EQ(**moved, 3);
  const std::unique_ptr<int> taken = std::move(moved).value();
  EXPECT_EQ(*taken, 3);
}

TEST(Result, LetsItsValueBeChanged) {
  Result<std::string> text = std::string("a");
  *text += "b";
  text->push_back('c');
  EXPECT_EQ(text.value(), "abc");
}

TEST(Result, OfNothingSaysOnlyWhetherItWorked) {
  EXPECT_TRUE(even(2).has_value());
  EXPECT_FALSE(even(1));
  EXPECT_EQ(even(1).error().code, ErrorCode::kDoesNotFit);
}

TEST(ResultDeathTest, WrongSideAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH((void)half(7).value(), "");
  EXPECT_DEATH((void)half(8).error(), "");
  EXPECT_DEATH((void)even(2).error(), "");
}

Result<void> both_even(int a, int b, int& checked) {
  TRI_TRY(even(a));
  ++checked;
  TRI_TRY(even(b));
  ++checked;
  return {};
}

TEST(TriTry, LeavesAtTheFirstError) {
  int checked = 0;
  EXPECT_TRUE(both_even(2, 4, checked));
  EXPECT_EQ(checked, 2);
  checked = 0;
  const Result<void> failed = both_even(2, 5, checked);
  EXPECT_EQ(checked, 1);
  EXPECT_EQ(failed.error().code, ErrorCode::kDoesNotFit);
}

Result<std::unique_ptr<int>> boxed(int n) {
  TRI_TRY(even(n));
  return std::make_unique<int>(n);
}

Result<std::string> quarter_text(int n) {
  TRI_ASSIGN(const int once, half(n));
  int twice = 0;
  TRI_ASSIGN(twice, half(once));
  TRI_ASSIGN(const auto box, boxed(twice));
  return std::to_string(*box);
}

TEST(TriAssign, YieldsTheValueOrLeaves) {
  EXPECT_EQ(quarter_text(8).value(), "2");
  EXPECT_EQ(quarter_text(6).error().code, ErrorCode::kInvalid);
  EXPECT_EQ(quarter_text(4).error().code, ErrorCode::kDoesNotFit);
}

}  // namespace
}  // namespace tri
