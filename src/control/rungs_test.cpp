// Which rungs a run takes, in which order, and that it comes back.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "control/governor.h"

namespace tri::control {
namespace {

constexpr size_t kLayers = 6;
constexpr uint64_t kBase = 1000;
constexpr int64_t kBlocks = 4;

std::vector<LayerFacts> some_layers() {
  std::vector<LayerFacts> facts;
  for (size_t l = 0; l < kLayers; ++l) {
    facts.push_back({"layer" + std::to_string(l), 100, static_cast<int64_t>(10 * (l + 1))});
  }
  return facts;
}

// Saved outputs cost their bytes; recomputing a block gives back a tenth of them.
Price price_of(const PrecisionTable& table, const StepShape& shape, uint64_t limit) {
  uint64_t per_sample = 0;
  for (size_t l = 0; l < table.size(); ++l) per_sample += 10 * (l + 1) * storage_bytes(table[l].y);
  const uint64_t samples = static_cast<uint64_t>(shape.batch / shape.micros);
  Price price{kBase + per_sample * samples};
  const uint64_t tenth = per_sample * samples / 10;
  while (shape.recompute && price.blocks < kBlocks && price.bytes > limit) {
    price.bytes -= tenth;
    price.again = 0.05 * static_cast<double>(++price.blocks);
  }
  return price;
}

GovernorSettings settings_of(PrecisionPolicy precision, BatchPolicy batching) {
  GovernorSettings settings;
  settings.precision = precision;
  settings.batching = batching;
  settings.elastic = {.unit = 32, .least = 32, .most = 96, .delta_up = 32, .delta_down = 32};
  settings.first_batch = 96;
  settings.ghost = 32;
  settings.recompute = true;
  return settings;
}

struct Pressed {
  explicit Pressed(const GovernorSettings& settings)
      : governor(settings, some_layers(), {}), state(governor.start()) {}

  Signals signals(uint64_t ceiling) const {
    const Decision now = governor.current(state);
    Signals made{.step = 1, .samples = 1, .steps = 1, .batch = state.batch, .rate = 0.1};
    made.used_bytes = price_of(now.table, now, state.ceiling_bytes).bytes;
    made.ceiling_bytes = ceiling;
    made.layers.assign(kLayers, {.spread = 1, .y_amax = 1, .gy_amax = 1});
    return made;
  }
  Decision move_ceiling(uint64_t ceiling) {
    return governor.react(state, signals(ceiling), price_of);
  }
  Decision window(uint64_t ceiling) { return governor.decide(state, signals(ceiling), price_of); }
  uint64_t bytes() const {
    const Decision now = governor.current(state);
    return price_of(now.table, now, state.ceiling_bytes).bytes;
  }

  Governor governor;
  GovernorState state;
};

// "recomputed", "micro-batches", "precision", "batch", "ghost"
std::set<std::string> kinds(const Decision& decision) {
  std::set<std::string> found;
  for (const Change& change : decision.changes) {
    EXPECT_FALSE(change.reason.empty());
    found.insert(change.what.substr(0, change.what.find(' ')));
  }
  return found;
}

// What a start under ever lower ceilings gives up, each set once.
std::vector<std::set<std::string>> ladder(const GovernorSettings& settings) {
  std::vector<std::set<std::string>> seen;
  const uint64_t asked = Pressed(settings).bytes();
  for (uint64_t ceiling = asked; ceiling > kBase; ceiling -= (asked - kBase) / 200) {
    Pressed run(settings);
    const std::set<std::string> now = kinds(run.move_ceiling(ceiling));
    if (run.bytes() > ceiling) break;
    if (seen.empty() || seen.back() != now) seen.push_back(now);
  }
  return seen;
}

using Sets = std::vector<std::set<std::string>>;
using enum PrecisionPolicy;

TEST(Rungs, AreTakenInOrderAndOnlyWhereTheModeOpensThem) {
  const std::string again = "recomputed", narrow = "precision", batch = "batch", ghost = "ghost";
  const std::string micros = "micro-batches";
  EXPECT_EQ(ladder(settings_of(kFp32, BatchPolicy::kFixed)), (Sets{{}, {again}}));
  EXPECT_EQ(ladder(settings_of(kAdaptive, BatchPolicy::kFixed)),
            (Sets{{}, {again}, {again, narrow}}));
  Sets micro = ladder(settings_of(kBf16, BatchPolicy::kMicro));
  EXPECT_EQ(micro[1], std::set{again});
  EXPECT_EQ(micro[2], std::set{micros});  // cut in three nothing is recomputed
  EXPECT_TRUE(micro.back().contains(ghost));
  const Sets all = ladder(settings_of(kAdaptive, BatchPolicy::kElastic));
  // Behind a whole rung the ones before it may be needed less.
  std::vector<std::string> order;
  for (const std::set<std::string>& now : all) {
    for (const std::string& kind : now) {
      if (std::ranges::find(order, kind) == order.end()) order.push_back(kind);
    }
  }
  EXPECT_EQ(order, (std::vector{again, narrow, batch, ghost}));
}

TEST(Rungs, StayClosedWhereTheUserClosedThem) {
  GovernorSettings settings = settings_of(kFp32, BatchPolicy::kElastic);
  settings.recompute = false;
  settings.elastic.least = 64;  // above the ghost batch: a bound of the user's
  for (const std::set<std::string>& now : ladder(settings)) {
    EXPECT_TRUE(now.empty() || now == std::set<std::string>{"batch"});
  }
}

TEST(Rungs, SayTheirPrice) {
  Pressed run(settings_of(kAdaptive, BatchPolicy::kElastic));
  const Decision decision = run.move_ceiling(kBase + (run.bytes() - kBase) / 16);
  for (const std::string what : {"batch", "ghost batch"}) {
    const auto found = std::ranges::find(decision.changes, what, &Change::what);
    ASSERT_NE(found, decision.changes.end()) << what;
    EXPECT_NE(found->reason.find("would not fit into"), std::string::npos) << found->reason;
  }
  const auto again = std::ranges::find(decision.changes, "recomputed blocks", &Change::what);
  ASSERT_NE(again, decision.changes.end());
  EXPECT_NE(again->reason.find("% more multiply-adds"), std::string::npos) << again->reason;
}

TEST(Rungs, AreClimbedBackWhenThereIsRoom) {
  for (const BatchPolicy batching :
       {BatchPolicy::kFixed, BatchPolicy::kElastic, BatchPolicy::kMicro}) {
    Pressed run(settings_of(kAdaptive, batching));
    const GovernorState asked = run.state;
    const uint64_t roomy = 4 * run.bytes();
    const uint64_t tight = kBase + (run.bytes() - kBase) * 4 / 10;
    EXPECT_FALSE(run.move_ceiling(tight).changes.empty());
    EXPECT_LE(run.bytes(), tight);
    run.move_ceiling(roomy);
    for (int window = 0; window < 12; ++window) run.window(roomy);
    EXPECT_EQ(static_cast<const StepShape&>(run.state), static_cast<const StepShape&>(asked));
    EXPECT_EQ(run.governor.current(run.state).table, run.governor.current(asked).table);
    EXPECT_EQ(run.state.blocks, 0);
  }
}

TEST(Rungs, AnElasticBatchShrinksUntilItNeedsNoRescue) {
  Pressed run(settings_of(kAdaptive, BatchPolicy::kElastic));
  const uint64_t ceiling = kBase + (run.bytes() - kBase) / 2;
  run.move_ceiling(ceiling);
  EXPECT_GT(run.state.blocks, 0);
  int64_t last = run.state.batch;
  for (int window = 0; window < 8; ++window) {
    run.window(ceiling);
    EXPECT_LE(run.bytes(), ceiling);
    EXPECT_LE(run.state.batch, last);
    EXPECT_GE(run.state.batch, last - 32) << "one step in a window";
    last = run.state.batch;
  }
  EXPECT_EQ(run.state.blocks, 0);
  EXPECT_FALSE(std::ranges::any_of(run.state.layers, &AdaptiveLayer::narrow));
  EXPECT_EQ(last, 32);
}

TEST(Rungs, WhatNoRungReachesGetsTheSmallestStepOfTheSameNetwork) {
  Pressed run(settings_of(kAdaptive, BatchPolicy::kElastic));
  run.move_ceiling(kBase / 2);
  EXPECT_EQ(run.state.batch, 32);
  EXPECT_EQ(run.state.ghost, 32);
  EXPECT_EQ(run.state.blocks, kBlocks);
  EXPECT_FALSE(std::ranges::any_of(run.state.layers, &AdaptiveLayer::narrow));
}

TEST(Rungs, ALayerThatLosesTooMuchInEightBitsIsWidenedForGood) {
  Pressed run(settings_of(kAdaptive, BatchPolicy::kFixed));
  const uint64_t ceiling = kBase + (run.bytes() - kBase) * 55 / 100;
  run.move_ceiling(ceiling);
  const auto narrow = std::ranges::find_if(run.state.layers, &AdaptiveLayer::narrow);
  ASSERT_NE(narrow, run.state.layers.end());
  const auto l = static_cast<size_t>(narrow - run.state.layers.begin());
  const uint64_t roomy = 2 * ceiling;
  for (int window = 0; window < 2; ++window) {  // the first one sets its scale
    Signals seen = run.signals(ceiling);
    seen.layers[l].y_amax = 1000;
    seen.layers[l].y_underflow = 0.5;
    run.governor.decide(run.state, seen, price_of);
    if (window == 0) {
      EXPECT_LT(run.state.layers[l].scales.y * 1000, 31);
    }
  }
  EXPECT_TRUE(run.state.layers[l].lossy);
  run.window(roomy);
  EXPECT_FALSE(run.state.layers[l].narrow);
  run.move_ceiling(ceiling);
  EXPECT_FALSE(run.state.layers[l].narrow);
}

}  // namespace
}  // namespace tri::control
