#include "base/bytes.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "base/draws.h"

namespace tri::base {
namespace {

uint64_t bytes_of(std::string_view text) {
  const Result<Size> size = parse_size(text);
  EXPECT_TRUE(size.has_value()) << text;
  EXPECT_EQ(size->kind, Size::Kind::kBytes) << text;
  return size->bytes;
}

TEST(ParseSize, ReadsBytes) {
  EXPECT_EQ(bytes_of("1"), 1u);
  EXPECT_EQ(bytes_of("4096"), 4096u);
  EXPECT_EQ(bytes_of("7B"), 7u);
  EXPECT_EQ(bytes_of("512k"), 512u << 10);
  EXPECT_EQ(bytes_of("256MiB"), 256u << 20);
  EXPECT_EQ(bytes_of("256mib"), 256u << 20);
  EXPECT_EQ(bytes_of("96.0 MiB"), 96u << 20);
  EXPECT_EQ(bytes_of("1G"), uint64_t{1} << 30);
  EXPECT_EQ(bytes_of("1.5G"), uint64_t{3} << 29);
  EXPECT_EQ(bytes_of("2T"), uint64_t{2} << 40);
  EXPECT_EQ(bytes_of("1KB"), 1000u);
  EXPECT_EQ(bytes_of("3MB"), 3'000'000u);
  EXPECT_EQ(bytes_of("0.1GB"), 100'000'000u);
  EXPECT_EQ(bytes_of("18446744073709551615"), UINT64_MAX);
}

TEST(ParseSize, ReadsSharesAndAuto) {
  EXPECT_EQ(parse_size("auto").value(), Size{});
  EXPECT_EQ(parse_size("Auto").value().kind, Size::Kind::kAuto);
  EXPECT_EQ(parse_size("60%").value().kind, Size::Kind::kFraction);
  EXPECT_EQ(parse_size("60%").value().fraction, 0.6);
  EXPECT_EQ(parse_size("12.5%").value().fraction, 0.125);
  EXPECT_EQ(parse_size("100%").value().fraction, 1.0);
}

TEST(ParseSize, RefusesWithOneSentence) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "is not a number"},
      {"MiB", "is not a number"},
      {".", "is not a number"},
      {"1.2.3G", "is not a number"},
      {"-1G", "is not a number"},
      {"+1G", "is not a number"},
      {" 1G", "is not a number"},
      {"nan", "is not a number"},
      {"inf", "is not a number"},
      {"0", "is zero"},
      {"0.0G", "is zero"},
      {"0%", "is zero"},
      {"100.1%", "is more than the whole"},
      {"1e3", "has an unknown unit"},
      {"0x10", "has an unknown unit"},
      {"1Q", "has an unknown unit"},
      {"1 ", "has an unknown unit"},
      {"1  G", "has an unknown unit"},
      {"1G ", "has an unknown unit"},
      {"1GiBs", "has an unknown unit"},
      {"1iB", "has an unknown unit"},
      {"60%%", "has an unknown unit"},
      {"autos", "is not a number"},
      {"0.5", "is less than one byte"},
      {"0.0001K", "is less than one byte"},
      {"18446744073709551616", "is more than 64 bits can count"},
      {"16777216T", "is more than 64 bits can count"},
      {"16777216.0T", "is more than 64 bits can count"},
  };
  for (const auto& [text, why] : cases) {
    const Result<Size> size = parse_size(text);
    ASSERT_FALSE(size.has_value()) << "'" << text << "'";
    EXPECT_EQ(size.error().code, ErrorCode::kInvalid);
    EXPECT_THAT(size.error().message, testing::StartsWith(fmt::format("size '{}' {};", text, why)));
  }
}

TEST(ParseSize, SurvivesNumbersBeyondDouble) {
  const std::string digits(400, '9');
  for (const std::string& text :
       {digits, digits + ".5", digits + "%", "0." + std::string(400, '0') + "1"}) {
    ASSERT_FALSE(parse_size(text));
    EXPECT_THAT(parse_size(text).error().message, testing::HasSubstr("is out of range"));
  }
}

TEST(FormatBytes, PicksTheUnit) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(96u << 20), "96.0 MiB");
  EXPECT_EQ(format_bytes((1u << 20) - 1), "1.0 MiB");
  EXPECT_EQ(format_bytes(uint64_t{3} << 29), "1.5 GiB");
  EXPECT_EQ(format_bytes(UINT64_MAX), "16.0 EiB");
}

TEST(ParseSize, ReadsEveryWholeNumberExactly) {
  Draws draw(1);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t n = 1 + (draw.word_of_any_size() >> 1);
    EXPECT_EQ(parse_size(std::to_string(n)).value().bytes, n);
  }
}

TEST(ParseSize, UnitsScaleExactlyOrOverflow) {
  const std::pair<const char*, unsigned> units[] = {{"K", 10}, {"MiB", 20}, {"g", 30}, {"TiB", 40}};
  Draws draw(2);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t n = 1 + (draw.word_of_any_size() >> 24);
    const auto& [unit, shift] = draw.of(units);
    const Result<Size> size = parse_size(std::to_string(n) + unit);
    const bool fits = n <= UINT64_MAX >> shift;
    ASSERT_EQ(size.has_value(), fits) << n << unit;
    if (!fits) continue;
    EXPECT_EQ(size->bytes, n << shift) << n << unit;
  }
}

// One decimal loses at most half of 0.1 units of at least 1.0; below 1 KiB nothing is lost.
TEST(ParseSize, ReadsWhatFormatBytesWrites) {
  Draws draw(3);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t n = 1 + (draw.word_of_any_size() >> 15);
    const uint64_t read = parse_size(format_bytes(n)).value().bytes;
    const double error = static_cast<double>(read) - static_cast<double>(n);
    EXPECT_LE(std::abs(error), n < 1024 ? 0 : 0.05 * static_cast<double>(n) + 1) << n;
  }
}

TEST(ParseSize, NeverYieldsNothing) {
  constexpr std::string_view kLetters = "0123456789..%KkMiBgTau -";
  Draws draw(4);
  for (int i = 0; i < 10'000; ++i) {
    std::string text = draw.text(6, 0, 256);
    if (i % 8 > 0) {
      for (char& letter : text) letter = draw.of(kLetters);
    }
    const Result<Size> size = parse_size(text);
    if (!size) continue;
    EXPECT_TRUE(size->kind != Size::Kind::kBytes || size->bytes > 0) << text;
    EXPECT_TRUE(size->kind != Size::Kind::kFraction || (size->fraction > 0 && size->fraction <= 1))
        << text;
  }
}

}  // namespace
}  // namespace tri::base
