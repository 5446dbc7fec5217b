#include "metrics/event.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/draws.h"

namespace tri::metrics {
namespace {

using nlohmann::json;

TEST(Value, WritesEveryTypeAsItself) {
  EXPECT_EQ(Value(true).text(), "true");
  EXPECT_EQ(Value(false).text(), "false");
  EXPECT_EQ(Value(-3).text(), "-3");
  EXPECT_EQ(Value(std::numeric_limits<uint64_t>::max()).text(), "18446744073709551615");
  EXPECT_EQ(Value(std::numeric_limits<int64_t>::min()).text(), "-9223372036854775808");
  EXPECT_EQ(Value(0.1f).text(), "0.1");
  EXPECT_EQ(Value(0.1).text(), "0.1");
  EXPECT_EQ(Value("conv1").text(), "\"conv1\"");
  EXPECT_EQ(Value(std::string("conv1")).text(), "\"conv1\"");
  EXPECT_EQ(Value(std::vector<int>{1, 2, 3}).text(), "[1,2,3]");
  EXPECT_EQ(Value(std::vector<std::string>{"a", "b"}).text(), "[\"a\",\"b\"]");
  EXPECT_EQ(Value(std::vector<double>{}).text(), "[]");
  EXPECT_EQ(Value(Fields{}).text(), "{}");
}

TEST(Value, WritesWhatIsNotFiniteAsNull) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Value(kInf).text(), "null");
  EXPECT_EQ(Value(-kInf).text(), "null");
  EXPECT_EQ(Value(std::nan("")).text(), "null");
  EXPECT_EQ(Value(std::numeric_limits<float>::infinity()).text(), "null");
  EXPECT_EQ(Value(std::vector<double>{1.5, kInf}).text(), "[1.5,null]");
}

TEST(Value, KeepsTextOnOneLine) {
  EXPECT_EQ(Value("a\n\"b\"\\\t").text(), R"("a\n\"b\"\\\t")");
  EXPECT_EQ(Value("\xff!").text(), "\"\xEF\xBF\xBD!\"");
}

TEST(Value, DoublesReadBackToTheSameBits) {
  base::Draws draw(1);
  for (int i = 0; i < 1000; ++i) {
    // Half of them whole numbers, whose text has no point.
    const uint64_t bits =
        draw.coin() ? draw.word()
                    : std::bit_cast<uint64_t>(static_cast<double>(draw.word_of_any_size()));
    const auto value = std::bit_cast<double>(bits);
    if (!std::isfinite(value)) continue;
    // A whole number reads back as an integer, -0 included; as a double it has the same bits.
    const double read = std::strtod(Value(value).text().c_str(), nullptr);
    EXPECT_EQ(std::bit_cast<uint64_t>(read), bits);
    EXPECT_EQ(json::parse(Value(value).text()).get<double>(), value);
  }
}

TEST(Value, AnyBytesGiveOneLineOfJson) {
  base::Draws draw(2);
  for (int i = 0; i < 1000; ++i) {
    const std::string text = Value(draw.text(40, 0, 256)).text();
    EXPECT_TRUE(json::accept(text)) << text;
    EXPECT_EQ(text.find('\n'), text.npos);
  }
}

TEST(Event, WritesItsOwnFieldsAfterTheSharedOnes) {
  const Event event{
      .kind = EventKind::kControl,
      .step = 40,
      .samples = 2560,
      .seconds = 1.5,
      .fields = {{"changes",
                  std::vector<Fields>{
                      {{"what", "batch"}, {"from", 64}, {"to", 80}, {"reason", "memory is free"}}}},
                 {"memory", Fields{{"share", 0.5}, {"bytes", 1 << 20}}}}};
  EXPECT_EQ(to_json(event),
            R"({"event":"control","step":40,"samples":2560,"seconds":1.5,)"
            R"("changes":[{"what":"batch","from":64,"to":80,"reason":"memory is free"}],)"
            R"("memory":{"share":0.5,"bytes":1048576}})");
}

TEST(Event, HasTheNamesOfTheManual) {
  const char* const names[] = {"start", "step",       "control", "curvature",
                               "epoch", "checkpoint", "warning", "end"};
  for (size_t i = 0; i < std::size(names); ++i) {
    EXPECT_EQ(name(static_cast<EventKind>(i)), names[i]);
  }
}

TEST(EventDeathTest, ANameIsUsedOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(Fields({{"loss", 1}, {"loss", 2}}), "two fields are named loss");
  EXPECT_DEATH(to_json({.fields = {{"step", 1}}}), "two fields are named step");
}

}  // namespace
}  // namespace tri::metrics
