#include "train/trace.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tri::train {
namespace {

TEST(Trace, has_a_bar_for_every_tick_one_behind_the_other) {
  exec::StepPlan plan;
  plan.ticks = {{"conv1", exec::Phase::kForward, {}, {}, {}, -1},
                {"conv1 weights", exec::Phase::kBackward, {}, {}, {}, -1},
                {"norm1 update", exec::Phase::kUpdate, {}, {}, {}, -1}};
  const std::vector<int64_t> spent = {3000, 2000, 500};
  const auto json = nlohmann::json::parse(trace_json(plan, spent));
  std::vector<nlohmann::json> bars;
  for (const auto& event : json["traceEvents"])
    if (event["ph"] == "X") bars.push_back(event);
  ASSERT_EQ(bars.size(), 3u);
  EXPECT_EQ(bars[0]["name"], "conv1");
  EXPECT_EQ(bars[0]["dur"], 3.0);
  EXPECT_EQ(bars[1]["cat"], "backward");
  EXPECT_EQ(bars[1]["ts"], 3.0);
  EXPECT_EQ(bars[2]["ts"], 5.0);
  EXPECT_NE(bars[0]["tid"], bars[1]["tid"]);
}

}  // namespace
}  // namespace tri::train
