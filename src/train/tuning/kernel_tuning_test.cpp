#include "train/tuning/kernel_tuning.h"

#include <gtest/gtest.h>

#include "train/engine_options.h"

namespace tri::train {
namespace {

struct Tuned {
  std::shared_ptr<const nn::Model> model;
  exec::EngineOptions options;
  KernelTuning tuning;
};

Tuned tune_small(uint64_t room) {
  ConfigBuilder builder;
  for (const auto& [key, text] : {std::pair{"method", "fp32"},
                                  {"model", "convnet"},
                                  {"width", "0.5"},
                                  {"data", "synthetic:3,8,90"},
                                  {"batch", "6"},
                                  {"threads", "2"}})
    EXPECT_TRUE(builder.set(key, text).has_value());
  const Config config = builder.resolve()->config;
  Tuned made{*model_of(config), {}, {}};
  made.options = *engine_options(config, *made.model);
  base::ThreadPool pool(2);
  auto tuning = tune_kernels(made.model, made.options, hyper_of(config), room, pool);
  EXPECT_TRUE(tuning.has_value());
  made.tuning = std::move(*tuning);
  return made;
}

// Not which: that is the machine's business.
TEST(KernelTuning, leaves_to_the_rule_only_what_has_no_choice) {
  const Tuned made = tune_small(uint64_t{1} << 30);
  ASSERT_EQ(made.tuning.kernels.size(), static_cast<size_t>(made.model->layers));
  EXPECT_EQ(made.tuning.times.size(), 3u);  // conv2 forward and backward, fc backward
  exec::EngineOptions options = made.options;
  options.step.kernels = made.tuning.kernels;
  const auto engine = exec::Engine::plan(made.model, options);
  ASSERT_TRUE(engine.has_value());
  for (size_t l = 0; l < made.tuning.kernels.size(); ++l) {
    const exec::LayerForecast& layer = (*engine)->forecast().layers[l];
    const ops::Kernels& tuned = made.tuning.kernels[l];
    const auto expect = [](ops::Kernel kernel, ops::Kernel other, ops::Kernel in_table) {
      EXPECT_EQ(in_table, kernel == other ? ops::Kernel::kByShape : kernel);
    };
    expect(layer.kernels.forward, layer.others.forward, tuned.forward);
    expect(layer.kernels.backward, layer.others.backward, tuned.backward);
  }
}

TEST(KernelTuning, keeps_the_rule_where_there_is_no_room_to_try) {
  const Tuned made = tune_small(1);
  const auto engine = exec::Engine::plan(made.model, made.options);
  ASSERT_TRUE(engine.has_value());
  EXPECT_TRUE(made.tuning.times.empty());
  exec::EngineOptions tuned = made.options;
  tuned.step.kernels = made.tuning.kernels;
  const auto again = exec::Engine::plan(made.model, tuned);
  ASSERT_TRUE(again.has_value());
  for (size_t l = 0; l < made.tuning.kernels.size(); ++l)
    EXPECT_EQ((*engine)->forecast().layers[l].kernels, (*again)->forecast().layers[l].kernels) << l;
}

}  // namespace
}  // namespace tri::train
