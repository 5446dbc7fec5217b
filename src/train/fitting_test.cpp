#include "train/fitting.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "train/engine_options.h"

namespace tri::train {
namespace {

struct Asked {
  Config config;
  std::unique_ptr<exec::Engine> engine;
};

Asked ask(const std::vector<std::pair<std::string, std::string>>& settings) {
  ConfigBuilder builder;
  for (const auto& [key, text] : settings) EXPECT_TRUE(builder.set(key, text)) << key;
  const Result<ResolvedConfig> resolved = builder.resolve();
  EXPECT_TRUE(resolved) << resolved.error().message;
  Asked asked{resolved->config, nullptr};
  const auto model = model_of(asked.config);
  EXPECT_TRUE(model) << model.error().message;
  exec::EngineOptions options;
  options.step.samples = asked.config.batch;
  options.step.ghost = *asked.config.ghost_batch;
  options.step.mode = exec::StepMode::kFused;
  auto engine = exec::Engine::plan(*model, options);
  EXPECT_TRUE(engine) << engine.error().message;
  asked.engine = std::move(*engine);
  return asked;
}

Asked ask_for(const std::string& mode) {
  return ask({{"model", "resnet18-cifar"},
              {"width", "0.25"},
              {"data", "cifar10:none"},
              {"batch", "64"},
              {"ghost-batch", "8"},
              {"batch-mode", mode}});
}

std::optional<Fit> fit(const Asked& asked, double share) {
  const auto whole = static_cast<double>(asked.engine->forecast().engine_peak_bytes);
  const auto bytes = static_cast<uint64_t>(share * whole);
  return fit_step(*asked.engine, asked.config, asked.engine->spec(),
                  [bytes](int64_t) { return bytes; });
}

bool has(const Fit& fit, const std::string& what) {
  return std::ranges::any_of(fit.rungs, [&](const Rung& rung) { return rung.what == what; });
}

TEST(Fitting, takes_no_rung_where_there_is_room) {
  for (const char* mode : {"elastic", "micro", "fixed"}) {
    const Asked asked = ask_for(mode);
    const std::optional<Fit> found = fit(asked, 1.0);
    ASSERT_TRUE(found) << mode;
    EXPECT_TRUE(found->rungs.empty());
    EXPECT_EQ(found->spec, asked.engine->spec());
  }
}

TEST(Fitting, stays_within_every_room_it_accepts) {
  for (const char* mode : {"elastic", "micro", "fixed"}) {
    const Asked asked = ask_for(mode);
    const auto whole = static_cast<double>(asked.engine->forecast().engine_peak_bytes);
    for (const double share : {0.9, 0.7, 0.5, 0.4, 0.3, 0.25, 0.2, 0.1}) {
      const std::optional<Fit> found = fit(asked, share);
      if (!found) continue;
      const auto price = asked.engine->price(found->spec);
      ASSERT_TRUE(price);
      EXPECT_EQ(price->engine_peak_bytes, found->engine_bytes);
      EXPECT_LE(static_cast<double>(found->engine_bytes), share * whole) << mode << " " << share;
      EXPECT_FALSE(found->rungs.empty()) << mode << " " << share;
    }
  }
}

TEST(Fitting, recomputes_under_a_fixed_batch) {
  const Asked asked = ask_for("fixed");
  const std::optional<Fit> found = fit(asked, 0.8);
  ASSERT_TRUE(found);
  EXPECT_TRUE(has(*found, "recomputed blocks"));
  EXPECT_EQ(found->spec.samples, 64);
  EXPECT_EQ(found->spec.ghost, asked.engine->spec().ghost);
  EXPECT_FALSE(fit(asked, 0.02));
}

TEST(Fitting, shrinks_an_elastic_batch_before_it_recomputes) {
  const Asked asked = ask_for("elastic");
  const std::optional<Fit> slightly = fit(asked, 0.8);
  ASSERT_TRUE(slightly);
  EXPECT_TRUE(has(*slightly, "batch"));
  EXPECT_FALSE(has(*slightly, "recomputed blocks"));
  EXPECT_LT(slightly->spec.samples, 64);
  EXPECT_EQ(slightly->spec.samples % 8, 0);
}

TEST(Fitting, keeps_the_optimisation_batch_in_micro_mode) {
  const Asked asked = ask_for("micro");
  const std::optional<Fit> found = fit(asked, 0.75);
  ASSERT_TRUE(found);
  EXPECT_TRUE(has(*found, "micro-batches"));
  EXPECT_EQ(found->spec.batch(), 64);
  EXPECT_GT(found->spec.micros, 1);
}

TEST(Fitting, warns_where_batch_norm_will_see_less) {
  for (const char* mode : {"elastic", "micro"}) {
    const Asked asked = ask_for(mode);
    for (double share = 0.5; share > 0.02; share *= 0.9) {
      const std::optional<Fit> found = fit(asked, share);
      if (!found || found->spec.ghost == 8) continue;
      EXPECT_TRUE(has(*found, "ghost batch"));
      EXPECT_TRUE(std::ranges::any_of(found->rungs, &Rung::warn));
    }
  }
}

}  // namespace
}  // namespace tri::train
