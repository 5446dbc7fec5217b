#include "nn/init.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "nn/catalog.h"

namespace tri::nn {
namespace {

std::vector<float> drawn(const Model& model, size_t index, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(model.parameters[index].elements()));
  draw_initial(model, index, seed, values);
  return values;
}

struct Moments {
  double mean = 0, variance = 0, excess = 0;  // excess kurtosis: 0 normal, -1.2 uniform
  explicit Moments(const std::vector<float>& values) {
    const auto n = static_cast<double>(values.size());
    for (const float value : values) mean += static_cast<double>(value) / n;
    double fourth = 0;
    for (const float value : values) {
      const double square =
          (static_cast<double>(value) - mean) * (static_cast<double>(value) - mean);
      variance += square / n;
      fourth += square * square / n;
    }
    excess = fourth / (variance * variance) - 3;
  }
};

// Five deviations of the estimate over n values, so that the one fixed seed passes with certainty
// and a wrong factor of a few per cent does not.
void expect_drawn_from(const Init& init, const std::vector<float>& values) {
  const auto n = static_cast<double>(values.size());
  const bool normal = init.kind == Init::Kind::kNormal;
  const double variance = init.spread * init.spread / (normal ? 1.0 : 3.0);
  const Moments moments(values);
  EXPECT_NEAR(moments.mean, init.center, 5 * std::sqrt(variance / n));
  EXPECT_NEAR(moments.variance / variance, 1.0, 5 * std::sqrt((normal ? 2.0 : 0.8) / n));
  EXPECT_NEAR(moments.excess, normal ? 0.0 : -1.2, 5 * std::sqrt(24.0 / n));
  if (!normal) {
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    EXPECT_GE(*low, static_cast<float>(-init.spread));
    EXPECT_LE(*high, static_cast<float>(init.spread));
  }
}

TEST(Init, PiecesGiveTheNumbersOfTheWhole) {
  const Result<Model> model = build("convnet", {.width_multiplier = 0.5});
  ASSERT_TRUE(model);
  for (size_t i = 0; i < model->parameters.size(); ++i) {
    const std::vector<float> whole = drawn(*model, i, 7);
    for (const size_t piece : {size_t{1}, size_t{7}, size_t{64}}) {
      std::vector<float> parts(whole.size());
      for (size_t at = 0; at < parts.size(); at += piece)
        draw_initial(*model, i, 7, std::span(parts).subspan(at, std::min(piece, parts.size() - at)),
                     at);
      EXPECT_EQ(whole, parts) << model->parameters[i].name << " " << piece;
    }
  }
}

TEST(Init, ValuesFollowTheirDistribution) {
  for (const char* name : {"convnet", "squeezenet", "mlp"}) {
    const Result<Model> model = build(name, {.width_multiplier = 0.5});
    ASSERT_TRUE(model);
    for (size_t i = 0; i < model->parameters.size(); ++i) {
      SCOPED_TRACE(model->parameters[i].name);
      const std::vector<float> values = drawn(*model, i, 7);
      if (model->parameters[i].init.kind == Init::Kind::kConstant) {
        const auto constant = static_cast<float>(model->parameters[i].init.center);
        EXPECT_TRUE(std::ranges::all_of(values, [&](float value) { return value == constant; }));
      } else if (values.size() >= 1000) {
        expect_drawn_from(model->parameters[i].init, values);
      }
    }
  }
}

TEST(Init, DependsOnSeedAndIndexOnly) {
  const Result<Model> model = build("mlp", {.width_multiplier = 0.1});
  ASSERT_TRUE(model);
  EXPECT_EQ(drawn(*model, 2, 1), drawn(*model, 2, 1));
  EXPECT_NE(drawn(*model, 2, 1), drawn(*model, 2, 2));
  EXPECT_NE(drawn(*model, 1, 1), drawn(*model, 3, 1));  // both are biases of one size
}

// What torchvision's constructors leave in the models, by role.
TEST(Init, RulesAreTorchvisions) {
  const auto init = [](std::string_view name, std::string_view parameter) {
    const Result<Model> model = build(name, {.classes = 100});
    EXPECT_TRUE(model);
    const auto found = std::ranges::find(model->parameters, parameter, &Parameter::name);
    EXPECT_NE(found, model->parameters.end()) << parameter;
    return found->init;
  };
  using Kind = Init::Kind;
  const auto expect = [](const Init& actual, Kind kind, double center, double spread) {
    EXPECT_EQ(actual.kind, kind);
    EXPECT_DOUBLE_EQ(actual.center, center);
    EXPECT_DOUBLE_EQ(actual.spread, spread);
  };
  expect(init("resnet18", "conv1.weight"), Kind::kNormal, 0, std::sqrt(2.0 / (64 * 49)));
  expect(init("resnet18", "bn1.weight"), Kind::kConstant, 1, 0);
  expect(init("resnet18", "bn1.bias"), Kind::kConstant, 0, 0);
  expect(init("resnet18", "fc.weight"), Kind::kUniform, 0, 1 / std::sqrt(512.0));
  expect(init("resnet18", "fc.bias"), Kind::kUniform, 0, 1 / std::sqrt(512.0));
  expect(init("mobilenet-v2", "features.1.conv.0.0.weight"), Kind::kNormal, 0,
         std::sqrt(2.0 / (32 * 9)));
  expect(init("mobilenet-v2", "classifier.1.weight"), Kind::kNormal, 0, 0.01);
  expect(init("mobilenet-v2", "classifier.1.bias"), Kind::kConstant, 0, 0);
  expect(init("efficientnet-b0", "classifier.1.weight"), Kind::kUniform, 0, 0.1);
  expect(init("efficientnet-b0", "features.1.0.block.1.fc1.bias"), Kind::kConstant, 0, 0);
  expect(init("shufflenet-v2", "conv1.0.weight"), Kind::kUniform, 0, 1 / std::sqrt(27.0));
  expect(init("squeezenet", "features.0.weight"), Kind::kUniform, 0, std::sqrt(6.0 / 27));
  expect(init("squeezenet", "classifier.1.weight"), Kind::kNormal, 0, 0.01);
}

}  // namespace
}  // namespace tri::nn
