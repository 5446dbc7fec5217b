// What a step tells the governor.
#include "train/governing.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "numeric/format.h"
#include "train/engine_options.h"

namespace tri::train {
namespace {

class GoverningTest : public testing::Test {
 protected:
  void SetUp() override {
    ConfigBuilder builder;
    for (const auto& [key, text] : {std::pair{"model", "convnet"},
                                    {"width", "0.2"},
                                    {"precision", "assign:1"},
                                    {"pixels", "16"},
                                    {"classes", "4"},
                                    {"batch", "16"}})
      ASSERT_TRUE(builder.set(key, text)) << key;
    const auto resolved = builder.resolve();
    ASSERT_TRUE(resolved) << resolved.error().message;
    const auto model = model_of(resolved->config);
    ASSERT_TRUE(model) << model.error().message;
    const auto options = engine_options(resolved->config, **model);
    ASSERT_TRUE(options) << options.error().message;
    auto planned = exec::Engine::plan(*model, *options);
    ASSERT_TRUE(planned) << planned.error().message;
    engine = std::move(*planned);
    report.gradients.resize(engine->parameters().size());
    report.saved.resize(engine->lowered().tensors.size());
    report.passed.resize(engine->lowered().tensors.size());
  }

  // A tensor that `layer` writes.
  size_t tensor_of(int layer) const {
    const auto& tensors = engine->lowered().tensors;
    const auto at = std::find_if(tensors.begin() + 1, tensors.end(),
                                 [layer](const auto& tensor) { return tensor.layer == layer; });
    EXPECT_NE(at, tensors.end());
    return static_cast<size_t>(at - tensors.begin());
  }

  // Of a layer's weight.
  size_t parameter_of(int layer) const {
    for (const nn::Node& node : engine->model().nodes)
      if (node.layer == layer && node.weight >= 0) return static_cast<size_t>(node.weight);
    ADD_FAILURE() << "layer " << layer << " has no weight";
    return 0;
  }

  size_t weight_count(int layer) const {
    size_t count = 0;
    const exec::Parameters& parameters = engine->parameters();
    const size_t p = parameter_of(layer);
    for (size_t i = 0; i < parameters.pieces(p); ++i) count += parameters.piece(p, i).count;
    return count;
  }

  std::unique_ptr<exec::Engine> engine;
  exec::StepReport report;
};

// A mean over B samples, each with variance 0.09 around 0.2, has a variance of 0.09 / B: what the
// governor sees is the same for every B.
TEST_F(GoverningTest, TheSpreadOfAGradientDoesNotDependOnTheBatch) {
  const auto n = static_cast<double>(weight_count(0));
  for (const int64_t batch : {16, 64, 512}) {
    optim::GradStats& stats = report.gradients[parameter_of(0)];
    stats.sum = 0.2 * n;
    stats.sum_squares = n * (0.2 * 0.2 + 0.09 / static_cast<double>(batch));
    const control::Signals signals = signals_of(*engine, report, batch);
    EXPECT_EQ(signals.batch, batch);
    EXPECT_NEAR(signals.layers[0].spread, 0.09, 1e-9) << batch;
    EXPECT_EQ(signals.layers[1].spread, 0) << batch;
  }
}

TEST_F(GoverningTest, ElementsThatAreNotFiniteDoNotCount) {
  const auto n = static_cast<double>(weight_count(0));
  optim::GradStats& stats = report.gradients[parameter_of(0)];
  stats.nonfinite = 10;
  stats.sum = 0;
  stats.sum_squares = 4 * (n - 10);
  const control::Signals signals = signals_of(*engine, report, 16);
  EXPECT_EQ(signals.layers[0].nonfinite, 10u);
  EXPECT_NEAR(signals.layers[0].spread, 4 * 16, 1e-9);
}

TEST_F(GoverningTest, LossesAreSharesOfAllValuesOfABatch) {
  const size_t t = tensor_of(1);
  const int64_t elements = engine->lowered().tensors[t].shape.elements();
  for (const int64_t batch : {16, 48}) {
    const auto all = static_cast<uint64_t>(batch * elements);
    report.saved[t] = {all / 4, all / 8, 3.0f};
    report.passed[t] = {all / 16, all / 2, 0.25f};
    const control::LayerSignals layer = signals_of(*engine, report, batch).layers[1];
    EXPECT_DOUBLE_EQ(layer.y_overflow, 1.0 / 4);
    EXPECT_DOUBLE_EQ(layer.y_underflow, 1.0 / 8);
    EXPECT_DOUBLE_EQ(layer.y_amax, 3);
    EXPECT_DOUBLE_EQ(layer.gy_overflow, 1.0 / 16);
    EXPECT_DOUBLE_EQ(layer.gy_underflow, 1.0 / 2);
    EXPECT_DOUBLE_EQ(layer.gy_amax, 0.25);
  }
  const control::LayerSignals other = signals_of(*engine, report, 16).layers[0];
  EXPECT_EQ(other, control::LayerSignals{});
}

TEST_F(GoverningTest, ALostStepNamesItsLayer) {
  report.lost.assign(static_cast<size_t>(engine->model().layers) + 1, 0);
  report.skip(1);
  const control::Signals signals = signals_of(*engine, report, 16);
  EXPECT_TRUE(signals.failed);
  EXPECT_EQ(signals.first_bad, 1);
}

// Weights of 8 bits with four of exponent end at 30: beyond 31 they round to infinity.
TEST_F(GoverningTest, WeightsBeyondTheirFormatAreCounted) {
  ASSERT_TRUE(engine->obtain(1));
  ASSERT_EQ(engine->spec().formats[1].p, numeric::Format::kF8e4b4);
  const size_t p = parameter_of(1), count = weight_count(1);
  std::vector<float> values(count, 30.9f);
  for (size_t i = 0; i < count / 2; ++i) values[i] = i % 2 == 0 ? 31.0f : -31.0f;
  engine->parameters().set(p, values);
  control::Signals signals = signals_of(*engine, report, 16);
  add_weight_overflows(*engine, signals);
  EXPECT_DOUBLE_EQ(signals.layers[1].p_overflow,
                   static_cast<double>(count / 2) / static_cast<double>(count));
  EXPECT_EQ(signals.layers[0].p_overflow, 0);
}

}  // namespace
}  // namespace tri::train
