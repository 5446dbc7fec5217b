#include "golden/golden_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tri::golden {
namespace {

// Numbers printed by make_golden.py's hashes() and uniform().
TEST(GoldenFormula, EqualsItsPythonTwin) {
  EXPECT_EQ(hash("x", 0), 3711637726795544975u);
  EXPECT_EQ(hash("layer1.0.conv1.weight", 12345), 8393861118352212572u);
  EXPECT_EQ(uniform("x", 1), 0.6170535087585449);
  std::vector<float> values(3);
  fill("x", 0.5, 0.1, values);
  EXPECT_EQ(values, (std::vector<float>{0.440241635f, 0.561705351f, 0.528664708f}));
}

TEST(GoldenFormula, FillsParametersByRole) {
  const auto bound_of = [](const nn::Parameter& parameter) {
    std::vector<float> values(static_cast<size_t>(parameter.elements()));
    fill_parameter(parameter, values);
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    return std::pair(*low, *high);
  };
  const auto [low, high] = bound_of({"w", nn::ParamRole::kConvWeight, {64, 6, 2, 2}, {}});
  EXPECT_NEAR(low, -0.5, 0.01);
  EXPECT_NEAR(high, 0.5, 0.01);
  const auto [norm_low, norm_high] = bound_of({"g", nn::ParamRole::kNormWeight, {1000}, {}});
  EXPECT_NEAR(norm_low, 0.8, 0.01);
  EXPECT_NEAR(norm_high, 1.2, 0.01);
}

TEST(GoldenCompare, AcceptsTheTruthAndNothingElse) {
  std::vector<float> values(100);
  fill("t", 0.0, 1.0, values);
  Fingerprint print;
  print.elements = values.size();
  print.error_norm = 1e-6;
  print.error_max = 1e-7;
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    print.norm += value * value;
    print.projection += value * uniform("t/projection", i);
  }
  print.norm = std::sqrt(print.norm);
  for (uint64_t k = 0; k < 4; ++k)
    print.samples.push_back(static_cast<double>(values[hash("t/sample", k) % values.size()]));

  EXPECT_EQ(compare("t", print, values, 4.0), "");
  EXPECT_NE(compare("other", print, values, 4.0), "");
  EXPECT_NE(compare("t", print, std::span(values).first(99), 4.0), "");
  for (const size_t i : {size_t{0}, size_t{57}, size_t{99}}) {
    std::vector<float> wrong = values;
    wrong[i] += 1e-3f;
    EXPECT_NE(compare("t", print, wrong, 4.0), "") << i;
    EXPECT_EQ(compare("t", print, wrong, 4.0, 1e-2), "") << i;
    wrong[i] = NAN;
    EXPECT_NE(compare("t", print, wrong, 4.0), "") << i;
  }
  std::vector<float> swapped = values;
  std::swap(swapped[3], swapped[4]);
  EXPECT_NE(compare("t", print, swapped, 4.0), "");
}

TEST(GoldenFiles, EveryStepFitsItsModel) {
  ASSERT_GE(step_files().size(), 20u);
  for (const auto& path : step_files()) {
    SCOPED_TRACE(path.filename().string());
    const Result<Step> step = read_step(path);
    ASSERT_TRUE(step) << step.error().message;
    const Result<nn::Model> model = nn::build(step->model, step->options);
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(step->logits.size(), static_cast<size_t>(step->batch * model->classes()));
    ASSERT_EQ(step->gradients.size(), model->parameters.size());
    for (const nn::Parameter& parameter : model->parameters) {
      ASSERT_TRUE(step->gradients.contains(parameter.name)) << parameter.name;
      EXPECT_EQ(step->gradients.at(parameter.name).elements,
                static_cast<uint64_t>(parameter.elements()));
    }
    size_t norms = 0;
    for (const nn::Node& node : model->nodes) {
      if (node.kind != ops::OpKind::kBatchNorm) continue;
      ++norms;
      EXPECT_TRUE(step->running.contains(node.name + ".running_mean")) << node.name;
      EXPECT_TRUE(step->running.contains(node.name + ".running_var")) << node.name;
    }
    EXPECT_EQ(step->running.size(), 2 * norms);
    for (const auto& [optimizer, curve] : step->curves) {
      EXPECT_EQ(curve.losses.size(), 10u) << optimizer;
      EXPECT_EQ(curve.losses[0], step->loss) << optimizer;
    }
  }
}

TEST(GoldenFiles, OperationShapesAreThoseOfTheRules) {
  const Result<std::vector<Operation>> operations = read_operations();
  ASSERT_TRUE(operations) << operations.error().message;
  ASSERT_GE(operations->size(), 20u);
  const auto sample = [](const Array& array) {
    const auto& d = array.dims;
    return d.size() == 4 ? tensor::Shape{d[2], d[3], d[1]} : tensor::Shape{1, 1, d[1]};
  };
  for (const Operation& operation : *operations) {
    SCOPED_TRACE(operation.name);
    std::vector<tensor::Shape> inputs{sample(operation.inputs.at("x"))};
    if (operation.inputs.contains("factors"))
      inputs.push_back(sample(operation.inputs.at("factors")));
    if (operation.kind == ops::OpKind::kLinear) inputs[0] = {1, 1, inputs[0].elements()};
    const Result<tensor::Shape> shape = ops::infer(operation.kind, operation.attributes, inputs);
    ASSERT_TRUE(shape) << shape.error().message;
    if (!operation.output.dims.empty()) {
      EXPECT_EQ(*shape, sample(operation.output));
    }
    for (const auto& [name, array] : operation.gradients) {
      const int64_t elements =
          std::accumulate(array.dims.begin(), array.dims.end(), int64_t{1}, std::multiplies<>());
      EXPECT_EQ(array.values.size(), static_cast<size_t>(elements)) << name;
    }
  }
}

TEST(GoldenFiles, ABrokenFileIsAnError) {
  EXPECT_FALSE(read_step(folder() / "steps" / "absent.json"));
  EXPECT_FALSE(read_step(folder() / "make_golden.py"));
  EXPECT_FALSE(read_step(folder() / "operations.json"));
}

}  // namespace
}  // namespace tri::golden
