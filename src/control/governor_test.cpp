#include "control/governor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "control/signal_replay.h"

namespace tri::control {
namespace {

constexpr size_t kLayers = 6;
constexpr uint64_t kBase = 10000;

std::vector<LayerFacts> some_layers() {
  std::vector<LayerFacts> facts;
  for (size_t l = 0; l < kLayers; ++l) {
    facts.push_back({"layer" + std::to_string(l), 100, static_cast<int64_t>(10 * (l + 1))});
  }
  return facts;
}

// Every stored element costs its bytes, a micro-batch holds its share of the samples.
uint64_t plan_bytes(const PrecisionTable& table, int64_t batch, int64_t micros) {
  const std::vector<LayerFacts> facts = some_layers();
  uint64_t per_sample = 0;
  for (size_t l = 0; l < table.size(); ++l) {
    per_sample += static_cast<uint64_t>(facts[l].y_elements) *
                  (storage_bytes(table[l].y) + storage_bytes(table[l].gy));
  }
  return kBase + per_sample * static_cast<uint64_t>(batch / micros);
}

constexpr int64_t kBlocks = 4;

// Recomputing a block gives back a tenth of what the samples cost.
Price price_of(const PrecisionTable& table, const StepShape& shape, uint64_t limit) {
  Price price{plan_bytes(table, shape.batch, shape.micros)};
  const uint64_t tenth = (price.bytes - kBase) / 10;
  while (shape.recompute && price.blocks < kBlocks && price.bytes > limit) {
    price.bytes -= tenth;
    price.again = 0.05 * static_cast<double>(++price.blocks);
  }
  return price;
}

GovernorSettings adaptive_settings() {
  GovernorSettings settings;
  settings.precision = PrecisionPolicy::kAdaptive;
  settings.adaptive = {.beta = 0.5, .tau_low = 0.1, .tau_high = 10};
  settings.batching = BatchPolicy::kElastic;
  settings.elastic = {.unit = 32, .least = 32, .most = 512, .delta_up = 32, .delta_down = 32};
  settings.step_size = {.on = true};
  settings.first_batch = 96;
  return settings;
}

// A governor in a made-up run that does as it is told.
struct MadeUpRun {
  explicit MadeUpRun(const GovernorSettings& settings) : governor(settings, some_layers(), {}) {
    state = governor.start();
    now = governor.current(state);
  }

  Signals signals(uint64_t ceiling) {
    step += 1;
    samples += static_cast<uint64_t>(now.batch);
    Signals made{.step = step, .samples = samples, .steps = 1, .batch = now.batch, .rate = 0.1};
    made.used_bytes = price_of(now.table, now, ceiling).bytes;
    made.ceiling_bytes = ceiling;
    made.layers.assign(kLayers, {.spread = 1, .y_amax = 1, .gy_amax = 1});
    return made;
  }
  const Decision& decide(const Signals& window) {
    return now = governor.decide(state, window, price_of);
  }
  const Decision& react(const Signals& step_signals) {
    return now = governor.react(state, step_signals, price_of);
  }

  Governor governor;
  GovernorState state;
  Decision now;
  uint64_t step = 0, samples = 0;
};

Signals wild(MadeUpRun& run, std::mt19937_64& random, uint64_t ceiling) {
  std::uniform_real_distribution<double> unit(0, 1);
  Signals made = run.signals(ceiling);
  for (LayerSignals& layer : made.layers) {
    layer.spread = std::pow(10.0, 6 * unit(random) - 3);
    layer.y_amax = std::pow(10.0, 8 * unit(random) - 4);
    layer.gy_amax = unit(random) < 0.1 ? 0 : layer.y_amax;
    if (unit(random) < 0.05) layer.gy_underflow = unit(random) / 20;
    if (unit(random) < 0.03) layer.y_overflow = unit(random);
  }
  if (unit(random) < 0.1) {
    made.failed = true;
    made.first_bad = static_cast<int64_t>(random() % (kLayers + 1)) - 1;
  }
  if (unit(random) < 0.2) {
    for (size_t l = 0; l < kLayers; ++l) made.lambda.push_back(40 * unit(random) - 5);
  }
  return made;
}

// The least that anything can need: all layers at 16 bits and the least batch.
uint64_t least_bytes() { return plan_bytes(PrecisionTable(kLayers, row_of(Level::kBf16)), 32, 1); }

bool said_to_wait(const Decision& decision, size_t layer) {
  return std::ranges::any_of(decision.changes, [&](const Change& change) {
    return change.what == "precision layer" + std::to_string(layer) &&
           change.reason.ends_with("does not fit");
  });
}

TEST(Governor, KeepsItsInvariantsUnderWildSignals) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    std::mt19937_64 random(seed);
    GovernorSettings settings = adaptive_settings();
    if (seed % 3 == 1) settings.adaptive.floor = Level::kBf16;
    MadeUpRun run(settings);
    const uint64_t ceiling =
        plan_bytes(run.now.table, run.now.batch, 1) + random() % 200000;  // fits at first
    std::vector<Level> floors(kLayers, settings.adaptive.floor);
    for (int window = 0; window < 120; ++window) {
      const Signals signals = wild(run, random, ceiling);
      const GovernorState before = run.state;
      const bool urgent = window % 2 == 1;
      if (urgent) {
        run.react(signals);
      } else {
        run.decide(signals);
      }
      EXPECT_LE(plan_bytes(run.now.table, run.now.batch, 1), ceiling);
      EXPECT_GE(run.now.batch, settings.elastic.least);
      EXPECT_LE(run.now.batch, settings.elastic.most);
      EXPECT_EQ(run.now.batch % settings.elastic.unit, 0);
      size_t moves = 0;
      for (const Change& change : run.now.changes) moves += change.what == "batch";
      EXPECT_LE(moves, urgent ? kLayers : kLayers + 1);
      for (size_t l = 0; l < kLayers; ++l) {
        const AdaptiveLayer& layer = run.state.layers[l];
        EXPECT_GE(layer.floor, floors[l]) << "a floor fell";
        floors[l] = layer.floor;
        EXPECT_GE(layer.level, settings.adaptive.floor);
        // A promotion beats a demotion, unless memory forbids it, which is said.
        if (layer.level < must(settings.adaptive, layer)) {
          EXPECT_TRUE(layer.held);
          const Level asked = must(settings.adaptive, before.layers[l]);
          const bool waited =
              before.layers[l].level < asked && asked == must(settings.adaptive, layer);
          EXPECT_TRUE(waited || said_to_wait(run.now, l));
        }
        EXPECT_EQ(run.now.table[l], row_of(layer));
      }
      EXPECT_EQ(run.state.changes, before.changes + run.now.changes.size());
    }
  }
}

TEST(Governor, ConstantSignalsLeadToRest) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    std::mt19937_64 random(seed);
    MadeUpRun run(adaptive_settings());
    const uint64_t ceiling = least_bytes() + random() % 300000;
    const Signals first = wild(run, random, ceiling);
    size_t last_change = 0;
    std::vector<int> flips;
    for (size_t window = 0; window < 200; ++window) {
      Signals same = first;
      same.failed = false;
      same.first_bad = -1;
      const Signals now = run.signals(ceiling);
      same.step = now.step;
      same.samples = now.samples;
      same.batch = now.batch;
      same.used_bytes = now.used_bytes;
      const auto before = run.now;
      run.decide(same);
      if (!run.now.changes.empty()) last_change = window;
      for (size_t l = 0; l < kLayers; ++l) {  // once up and once down at most: no flapping
        if (run.now.table[l] != before.table[l]) flips.push_back(static_cast<int>(l));
      }
    }
    EXPECT_LT(last_change, 60u) << seed;
    for (int l = 0; l < static_cast<int>(kLayers); ++l) {
      EXPECT_LE(std::ranges::count(flips, l), 3) << seed;
    }
  }
}

TEST(Governor, ABatchChangeAloneFlipsNothing) {
  GovernorSettings settings = adaptive_settings();
  for (const bool relative : {true, false}) {
    settings.adaptive.relative = relative;
    settings.adaptive.tau_low = relative ? 0.5 : 0.5e-2;
    settings.adaptive.tau_high = relative ? 2 : 2e-2;
    MadeUpRun run(settings);
    const auto window = [&](int64_t batch) {
      Signals made = run.signals(0);
      made.batch = batch;
      for (size_t l = 0; l < kLayers; ++l) {
        const double variance = 0.1 * static_cast<double>(l + 1) / static_cast<double>(batch);
        made.layers[l].spread = variance * static_cast<double>(batch);
      }
      return made;
    };
    run.decide(window(96));
    run.decide(window(96));
    for (const int64_t batch : {32, 512, 64, 1024, 96}) {
      EXPECT_TRUE(run.decide(window(batch)).changes.empty()) << batch;
    }
  }
}

TEST(Governor, NoiseAndMeanAreSmoothedEachForItself) {
  MadeUpRun run(adaptive_settings());
  const std::vector<double> lambda(kLayers, 0.1);
  run.governor.estimate(run.state, lambda, GradientNoise{10, 1});
  EXPECT_EQ(run.state.window.noise_scale, 10);
  run.governor.estimate(run.state, lambda, GradientNoise{30, -0.5});
  EXPECT_DOUBLE_EQ(run.state.window.noise_scale.value_or(0), 20 / 0.25);
  run.governor.estimate(run.state, lambda, GradientNoise{30, -2});
  EXPECT_FALSE(run.state.window.noise_scale) << "the mean cannot be told from noise";
  run.governor.estimate(run.state, lambda, {});
  EXPECT_FALSE(run.state.window.noise_scale);
}

TEST(Governor, TheLastNoiseScaleHoldsUntilTheNextEstimate) {
  MadeUpRun run(adaptive_settings());
  Signals window = run.signals(10'000'000);
  window.lambda.assign(kLayers, 0.1);
  window.noise_scale = 90;
  EXPECT_EQ(run.decide(window).batch, 96);
  EXPECT_EQ(run.decide(run.signals(10'000'000)).batch, 96) << "no estimate in this window";
  window = run.signals(10'000'000);
  window.lambda.assign(kLayers, 0.1);
  window.noise_scale = 100;
  EXPECT_EQ(run.decide(window).batch, 128);
  EXPECT_EQ(run.decide(run.signals(10'000'000)).batch, 128);
  window = run.signals(10'000'000);
  window.lambda.assign(kLayers, 0.1);  // an estimate too noisy to bound anything
  EXPECT_EQ(run.decide(window).batch, 160);
}

TEST(Governor, APromotionThatDoesNotFitShrinksTheBatchInTheSameDecision) {
  GovernorSettings settings = adaptive_settings();
  settings.precision = PrecisionPolicy::kBf16;
  MadeUpRun run(settings);
  const uint64_t ceiling = plan_bytes(run.now.table, 96, 1) + 100;
  Signals step = run.signals(ceiling);
  step.failed = true;
  step.first_bad = 5;
  const Decision& decision = run.react(step);
  EXPECT_EQ(decision.table[5], row_of(Level::kFp32));
  EXPECT_EQ(decision.batch, 64);
  ASSERT_EQ(decision.changes.size(), 2u);
  EXPECT_EQ(decision.changes[0].what, "precision layer5");
  EXPECT_EQ(decision.changes[1].what, "batch");
}

TEST(Governor, AFixedBatchMakesAPromotionWaitForRoom) {
  GovernorSettings settings = adaptive_settings();
  settings.precision = PrecisionPolicy::kBf16;
  settings.batching = BatchPolicy::kFixed;
  MadeUpRun run(settings);
  const uint64_t ceiling = plan_bytes(run.now.table, 96, 1) + 100;
  Signals step = run.signals(ceiling);
  step.failed = true;
  step.first_bad = 5;
  EXPECT_EQ(run.react(step).table[5], row_of(Level::kBf16));
  EXPECT_EQ(run.now.changes.size(), 1u);  // says so, once
  EXPECT_TRUE(run.decide(run.signals(ceiling)).changes.empty());
  EXPECT_EQ(run.decide(run.signals(100 * ceiling)).table[5], row_of(Level::kFp32));
}

TEST(Governor, ADeniedWishDoesNotHoldBackSafety) {
  MadeUpRun run(adaptive_settings());
  const uint64_t ceiling = plan_bytes(run.now.table, 96, 1) + 100;
  Signals window = run.signals(ceiling);
  window.layers[5].spread = 1000;
  run.decide(window);
  ASSERT_EQ(run.now.table[5], row_of(Level::kBf16));
  ASSERT_TRUE(run.state.layers[5].held);
  Signals step = run.signals(ceiling);
  step.failed = true;
  step.first_bad = 5;
  run.react(step);
  EXPECT_EQ(run.now.table[5], row_of(Level::kFp32));
  EXPECT_EQ(run.now.batch, 64);
}

TEST(Governor, AWishThatCostsNothingIsGrantedNextToTheCeiling) {
  GovernorSettings settings = adaptive_settings();
  settings.batching = BatchPolicy::kFixed;
  MadeUpRun run(settings);
  run.state.layers[3].level = Level::kFp16;
  run.now = run.governor.current(run.state);
  run.decide(run.signals(plan_bytes(run.now.table, 96, 1)));
  EXPECT_EQ(run.now.table[3], row_of(Level::kBf16));
}

// What was no number before a layer stored it is not its format's fault.
TEST(Governor, OnlyTheFirstOverflowOfALostStepIsBlamed) {
  MadeUpRun run(adaptive_settings());
  for (AdaptiveLayer& layer : run.state.layers) layer.level = Level::kFp16;
  run.now = run.governor.current(run.state);
  Signals step = run.signals(0);
  step.failed = true;
  for (size_t l = 0; l < kLayers; ++l) {
    step.layers[l].nonfinite = 7;
    step.layers[l].gy_overflow = 1;
    step.layers[l].y_overflow = l < 2 ? 0 : 0.5;
  }
  run.react(step);
  ASSERT_EQ(run.now.changes.size(), 1u);
  EXPECT_EQ(run.now.changes[0].what, "precision layer2");
  EXPECT_THAT(run.now.changes[0].reason, testing::HasSubstr("overflowed fp16"));

  step = run.signals(0);
  step.failed = true;
  step.first_bad = 4;
  for (size_t l = 0; l <= 4; ++l) step.layers[l].gy_overflow = 0.5;
  run.react(step);
  ASSERT_EQ(run.now.changes.size(), 1u);
  EXPECT_EQ(run.now.changes[0].what, "precision layer4");
}

TEST(Governor, MicroBatchesGiveRoomToAPromotion) {
  GovernorSettings settings = adaptive_settings();
  settings.batching = BatchPolicy::kMicro;
  MadeUpRun run(settings);
  Signals step = run.signals(plan_bytes(run.now.table, 96, 1) + 100);
  step.failed = true;
  step.first_bad = 0;
  run.react(step);
  EXPECT_EQ(run.now.table[0], row_of(Level::kFp32));
  EXPECT_EQ(run.now.batch, 96);
  EXPECT_EQ(run.now.micros, 3);  // of 32 samples
}

TEST(Governor, WishesAreTakenBackBeforeTheBatchShrinks) {
  MadeUpRun run(adaptive_settings());
  Signals window = run.signals(1000000);
  window.layers[5].spread = 1000;
  run.decide(window);
  ASSERT_EQ(run.now.table[5], row_of(Level::kFp32));
  const int64_t batch = run.now.batch;
  window = run.signals(0);
  window.ceiling_bytes = window.used_bytes - 1;
  window.layers[5].spread = 1000;
  run.react(window);
  EXPECT_EQ(run.now.table[5], row_of(Level::kBf16));
  EXPECT_EQ(run.now.batch, batch);
}

TEST(Governor, ALoweredCeilingIsRespectedAtOnce) {
  MadeUpRun run(adaptive_settings());
  const uint64_t ceiling = plan_bytes(run.now.table, 32, 1);
  EXPECT_EQ(run.react(run.signals(ceiling)).batch, 32);
}

TEST(Governor, ALostUpdatePromotesTheNamedLayerOrHalvesTheLossScale) {
  for (const PrecisionPolicy policy :
       {PrecisionPolicy::kBf16, PrecisionPolicy::kAdaptive, PrecisionPolicy::kFp16}) {
    GovernorSettings settings;
    settings.precision = policy;
    settings.loss_scale = {.on = scales_loss(policy), .first = 16};
    MadeUpRun run(settings);
    PrecisionTable table = run.now.table;
    Signals step = run.signals(0);
    step.failed = true;
    step.first_bad = 2;
    run.react(step);
    ASSERT_EQ(run.now.changes.size(), 1u);
    if (scales_loss(policy)) {
      EXPECT_EQ(run.now.loss_scale, 8);
      EXPECT_EQ(run.now.changes[0].what, "loss scale");
    } else {
      table[2] = row_of(Level::kFp32);
      EXPECT_EQ(run.now.loss_scale, 1);
      EXPECT_EQ(run.now.changes[0].what, "precision layer2");
    }
    EXPECT_EQ(run.now.table, table);
    EXPECT_EQ(run.state.loss.skipped, 1u);
  }
}

TEST(Governor, GivesUpOnlyWithEverythingPromoted) {
  GovernorSettings settings = adaptive_settings();
  MadeUpRun run(settings);
  int steps = 0;
  while (!run.now.diverged && steps < 100) {
    Signals step = run.signals(0);
    step.failed = true;
    run.react(step);
    ++steps;
  }
  EXPECT_TRUE(run.now.diverged);
  for (const PrecisionRow& row : run.now.table) EXPECT_EQ(row, row_of(Level::kFp32));
  EXPECT_GE(steps, 5);
  EXPECT_LT(steps, 20);
}

TEST(Governor, OneGoodStepForgivesTheLostOnes) {
  GovernorSettings settings;
  MadeUpRun run(settings);
  for (int step = 0; step < 20; ++step) {
    Signals signals = run.signals(0);
    signals.failed = step % 5 != 4;
    EXPECT_FALSE(run.react(signals).diverged);
  }
}

TEST(Governor, ALossScaleFallsBeforeTheRunIsGivenUp) {
  GovernorSettings settings;
  settings.precision = PrecisionPolicy::kFp16;
  settings.loss_scale = {.on = true, .first = 16};
  MadeUpRun run(settings);
  int steps = 0;
  while (!run.now.diverged && steps < 100) {
    Signals step = run.signals(0);
    step.failed = true;
    run.react(step);
    ++steps;
  }
  EXPECT_EQ(run.now.loss_scale, 1);
  EXPECT_EQ(steps, 4 + 5);
}

TEST(Governor, StepFactorKeepsEveryLayerBelowTheEdge) {
  MadeUpRun run(adaptive_settings());
  EXPECT_EQ(run.governor.step_factor(run.state, 0, 0.1), 1);
  const std::vector<double> lambda = {0, -3, 1, 20, 400, 1e9};
  run.governor.estimate(run.state, lambda, {});
  for (size_t l = 0; l < kLayers; ++l) {
    const double factor = run.governor.step_factor(run.state, l, 0.1);
    EXPECT_LE(factor, 1);
    EXPECT_LT(0.1 * factor * lambda[l], 2);
    EXPECT_TRUE(lambda[l] > 0 || factor == 1);
  }
  EXPECT_DOUBLE_EQ(run.governor.step_factor(run.state, 3, 0.1), 0.5);
}

std::vector<AssignOp> chain() {
  using Kind = AssignOp::Kind;
  std::vector<AssignOp> ops{{.kind = Kind::kInput, .y_elements = 10}};
  for (int l = 0; l < static_cast<int>(kLayers); ++l) {
    ops.push_back({Kind::kGemm, 100, 10 * (l + 1), {l}, l, true});
  }
  return ops;
}

TEST(Governor, AssignPromotesTheOverflowingTensorForGood) {
  GovernorSettings settings;
  settings.precision = PrecisionPolicy::kAssign;
  settings.assign.low_share = 1;
  const Governor governor(settings, some_layers(), chain());
  GovernorState state = governor.start();
  Signals step{.step = 1, .samples = 1, .steps = 1, .batch = 1};
  step.layers.resize(kLayers);
  step.layers[2].y_overflow = 0.01;
  step.layers[3].y_overflow = 0.0099;
  step.layers[4].p_overflow = 0.5;
  step.layers[5].gy_overflow = 1;  // left to the loss scale
  const Decision decision = governor.react(state, step, price_of);
  EXPECT_EQ(decision.changes.size(), 2u);
  EXPECT_EQ(decision.table[2].y, Format::kF16e6);
  EXPECT_EQ(decision.table[2].p, Format::kF8e4b4);
  EXPECT_EQ(decision.table[3].y, Format::kF8e4b4);
  EXPECT_EQ(decision.table[4].p, Format::kF16e6);
  EXPECT_EQ(decision.table[5].gy, Format::kF8e5);
  step.layers.assign(kLayers, {});
  EXPECT_EQ(governor.react(state, step, price_of).table, decision.table);
}

TEST(Governor, APromotionWithoutRoomIsToldOnce) {
  GovernorSettings settings;
  settings.precision = PrecisionPolicy::kAssign;
  settings.assign.low_share = 1;
  const Governor governor(settings, some_layers(), chain());
  GovernorState state = governor.start();
  const Decision first = governor.current(state);
  const uint64_t full = price_of(first.table, first, 0).bytes;
  Signals step{.step = 1, .samples = 1, .steps = 1, .batch = 1, .ceiling_bytes = full};
  step.layers.resize(kLayers);
  step.layers[2].y_overflow = 0.5;
  const Decision decision = governor.react(state, step, price_of);
  EXPECT_EQ(decision.table, first.table);
  ASSERT_EQ(decision.changes.size(), 1u);
  EXPECT_EQ(decision.changes[0].from, decision.changes[0].to);
  EXPECT_NE(decision.changes[0].reason.find("does not fit"), std::string::npos);
  EXPECT_TRUE(governor.react(state, step, price_of).changes.empty());
  step.ceiling_bytes = 2 * full;  // room comes
  EXPECT_EQ(governor.react(state, step, price_of).table[2].y, Format::kF16e6);
}

TEST(Governor, UniformPoliciesNeverPromote) {
  using enum PrecisionPolicy;
  for (const auto policy : {kFp16x169, kFp8, kHfp8}) {
    GovernorSettings settings;
    settings.precision = policy;
    const Governor governor(settings, some_layers(), chain());
    GovernorState state = governor.start();
    const PrecisionTable first = governor.current(state).table;
    Signals step{.step = 1, .steps = 1, .batch = 1};
    step.layers.assign(kLayers, {.p_overflow = 1, .y_overflow = 1});
    EXPECT_EQ(governor.react(state, step, price_of).table, first);
  }
}

TEST(Governor, RecordedSignalsReplayToTheSameDecisions) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    MadeUpRun run(adaptive_settings());
    const uint64_t ceiling = plan_bytes(run.now.table, 96, 1) + random() % 200000;
    std::vector<Record> records;
    std::vector<Decision> decisions;
    for (int window = 0; window < 30; ++window) {
      for (int i = 0; i < 4; ++i) {
        const Signals step = wild(run, random, ceiling);
        run.now = run.governor.watch(run.state, step, price_of);
        if (run.now.changes.empty() && !step.failed) continue;
        records.push_back({true, step});
        decisions.push_back(run.now);
      }
      if (!run.state.window.lambda.empty()) {
        const GradientNoise noise{1 + 100 * std::pow(2.0, random() % 8), 1};
        run.governor.estimate(run.state, run.state.window.lambda, noise);
      }
      records.push_back({false, run.state.window});
      run.now = run.governor.decide(run.state, price_of);
      decisions.push_back(run.now);
    }
    EXPECT_EQ(replay(run.governor, records, price_of), decisions) << seed;
  }
}

}  // namespace
}  // namespace tri::control
