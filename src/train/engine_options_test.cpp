#include "train/engine_options.h"

#include <gtest/gtest.h>

#include <cmath>

#include "train/ceiling.h"
#include "train/governing.h"

namespace tri::train {
namespace {

ResolvedConfig resolved(std::initializer_list<std::pair<const char*, const char*>> settings) {
  ConfigBuilder builder;
  for (const auto& [key, text] : settings) EXPECT_TRUE(builder.set(key, text).has_value()) << key;
  Result<ResolvedConfig> made = builder.resolve();
  EXPECT_TRUE(made.has_value());
  return *made;
}

TEST(EngineOptions, presets_become_tables_and_forms) {
  const Config amp = resolved({{"method", "amp"}, {"model", "convnet"}}).config;
  const auto model = model_of(amp);
  ASSERT_TRUE(model.has_value());
  const auto options = engine_options(amp, **model);
  ASSERT_TRUE(options.has_value());
  ASSERT_EQ(options->step.formats.size(), static_cast<size_t>((*model)->layers));
  using numeric::Format;
  const exec::LayerFormats row{Format::kBf16, Format::kBf16, Format::kBf16, Format::kF32};
  for (const exec::LayerFormats& formats : options->step.formats) EXPECT_EQ(formats, row);
  EXPECT_EQ(options->forms.weights, optim::WeightForm::kF32AndBf16);
  EXPECT_EQ(options->step.mode, exec::StepMode::kAfter);
  EXPECT_EQ(options->step.ghost, 0);
}

// Only SGD's step is the rate times the gradient.
TEST(Governing, curvature_steers_the_rate_of_sgd_alone) {
  for (const char* rule : {"sgd", "adam", "adamw", "lars", "lamb"}) {
    const Config config = resolved({{"model", "convnet"}, {"optimizer", rule}}).config;
    const auto model = model_of(config);
    ASSERT_TRUE(model.has_value());
    const control::Governor governor = make_governor(config, **model);
    const std::string_view name = rule;
    EXPECT_EQ(governor.settings().step_size.on, name == "sgd") << rule;
    const bool never = governor.settings().adaptive.tau_curv.value_or(0) == INFINITY;
    EXPECT_EQ(never, name == "lars" || name == "lamb") << rule;
  }
}

TEST(DecodeBytes, are_a_share_of_the_ceiling_of_folders) {
  constexpr uint64_t kMega = 1 << 20;
  EXPECT_EQ(decode_bytes("cifar10:/x", 64 * kMega), 0u);
  EXPECT_EQ(decode_bytes("folder:/x", 64 * kMega), 4 * kMega);
  EXPECT_EQ(decode_bytes("folder:/x", 8 * kMega), kMega);
  EXPECT_EQ(decode_bytes("folder:/x", 4096 * kMega), 32 * kMega);
}

TEST(EngineOptions, every_precision_becomes_a_table) {
  using numeric::Format;
  const std::pair<const char*, exec::LayerFormats> inner[] = {
      {"fp32", {}},
      {"bf16", {Format::kBf16, Format::kBf16, Format::kBf16, Format::kF32}},
      {"adaptive", {Format::kBf16, Format::kBf16, Format::kBf16, Format::kF32}},
      {"fp16", {Format::kF16, Format::kF16, Format::kF16, Format::kF32}},
      {"fp16-169", {Format::kF16e6, Format::kF16e6, Format::kF16e6, Format::kF16e6}},
      {"fp8", {Format::kF8e4b4, Format::kF8e4b4, Format::kF8e5, Format::kF16e6}},
      {"assign:0", {Format::kF16e6, Format::kF16e6, Format::kF16e6, Format::kF16e6}},
      {"assign:1", {Format::kF8e4b4, Format::kF8e4b4, Format::kF8e5, Format::kF16e6}},
      // What a norm reads stays 16-bit; operands of inner products are 8-bit.
      {"hfp8", {Format::kF8e4b4, Format::kF16e6, Format::kF8e5, Format::kF16e6}}};
  for (const auto& [word, row] : inner) {
    const Config config =
        resolved({{"method", "fp32"}, {"model", "resnet18"}, {"precision", word}}).config;
    const auto model = model_of(config);
    ASSERT_TRUE(model.has_value());
    const auto options = engine_options(config, **model);
    ASSERT_TRUE(options.has_value());
    EXPECT_EQ(options->step.formats[1], row) << word;
  }
}

TEST(EngineOptions, clipping_is_exact_where_that_costs_nothing) {
  const auto clip_of = [](const char* step, const char* extra) {
    const Config config = resolved({{"method", "fp32"},
                                    {"model", "convnet"},
                                    {"clip", "2"},
                                    {"step", step},
                                    {extra, "on"}})
                              .config;
    return engine_options(config, **model_of(config))->step.clip;
  };
  EXPECT_EQ(clip_of("after", "nesterov"), exec::Clip::kExact);
  EXPECT_EQ(clip_of("fused", "nesterov"), exec::Clip::kNone);  // by the norm of the step before
  EXPECT_EQ(clip_of("fused", "clip-exact"), exec::Clip::kExact);
  EXPECT_EQ(clip_of("fused", "clip-layer"), exec::Clip::kLayer);
}

TEST(EngineOptions, sgd_without_momentum_has_no_state) {
  const Config plain = resolved({{"method", "fp32"}, {"momentum", "0"}}).config;
  const auto model = model_of(plain);
  ASSERT_TRUE(model.has_value());
  EXPECT_EQ(engine_options(plain, **model)->forms.moments, 0u);
  EXPECT_EQ(state_word(plain), "none");
  EXPECT_EQ(state_word(resolved({}).config), "int8");
}

TEST(EngineOptions, sizes_without_data_are_those_of_colour_images) {
  EXPECT_EQ(input_size(without_data(resolved({})))->image, (tensor::Shape{28, 28, 1}));
  EXPECT_EQ(input_size(without_data(resolved({{"pixels", "28"}})))->image,
            (tensor::Shape{28, 28, 3}));
  const auto given = without_data(resolved({{"data", "mnist:/none"}, {"pixels", "32"}}));
  EXPECT_EQ(input_size(given)->image, (tensor::Shape{32, 32, 1}));
  EXPECT_EQ(input_size(without_data(resolved({{"classes", "1000"}})))->classes, 1000);
}

}  // namespace
}  // namespace tri::train
