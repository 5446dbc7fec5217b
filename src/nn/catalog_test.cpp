#include "nn/catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "nn/layers.h"

namespace tri::nn {
namespace {

using ::testing::HasSubstr;

std::string refusal(std::string_view name, const ModelOptions& options) {
  const Result<Model> model = build(name, options);
  return model ? "accepted" : model.error().message;
}

size_t count(const Model& model, ops::OpKind kind) {
  return static_cast<size_t>(std::ranges::count(model.nodes, kind, &Node::kind));
}

const Node& last_image(const Model& model) {
  return *std::find_if(model.nodes.rbegin(), model.nodes.rend(),
                       [](const Node& node) { return node.shape.pixels() > 1; });
}

TEST(Catalog, EveryModelTakesOddSizesAndIsWellFormed) {
  for (const CatalogEntry& entry : catalog()) {
    SCOPED_TRACE(entry.name);
    const Result<Model> built =
        build(entry.name,
              {.height = 37, .width = 61, .channels = 2, .classes = 7, .width_multiplier = 0.3});
    ASSERT_TRUE(built) << built.error().message;
    const Model& model = *built;
    EXPECT_EQ(model.classes(), 7);
    EXPECT_EQ(model.name, entry.name);
    std::vector<bool> used(model.parameters.size());
    for (size_t i = 0; i < model.nodes.size(); ++i) {
      const Node& node = model.nodes[i];
      EXPECT_EQ(node.kind == ops::OpKind::kInput, i == 0);
      EXPECT_LT(node.layer, model.layers);
      std::vector<tensor::Shape> inputs;
      for (const int input : node.inputs) {
        ASSERT_LT(input, static_cast<int>(i));
        inputs.push_back(model.nodes[static_cast<size_t>(input)].shape);
      }
      EXPECT_EQ(*ops::infer(node.kind, node.attr, inputs), node.shape) << node.name;
      for (const int parameter : {node.weight, node.bias}) {
        if (parameter < 0) continue;
        EXPECT_FALSE(used[static_cast<size_t>(parameter)]) << node.name;
        used[static_cast<size_t>(parameter)] = true;
      }
    }
    EXPECT_TRUE(std::ranges::all_of(used, std::identity()));
  }
}

TEST(Catalog, StemsEndWhereTheyShould) {
  const auto end = [](std::string_view name, int64_t pixels) {
    const Result<Model> model = build(name, {.height = pixels, .width = pixels});
    EXPECT_TRUE(model) << model.error().message;
    return last_image(*model).shape.h;
  };
  EXPECT_EQ(end("resnet18", 224), 7);
  EXPECT_EQ(end("resnet18-cifar", 32), 4);
  EXPECT_EQ(end("efficientnet-b0", 224), 7);
  EXPECT_EQ(end("mobilenet-v2", 224), 7);
  EXPECT_EQ(end("mobilenet-v2-cifar", 32), 4);
  EXPECT_EQ(end("shufflenet-v2", 224), 7);
  EXPECT_EQ(end("shufflenet-v2-cifar", 32), 4);
  EXPECT_EQ(end("squeezenet", 224), 13);
  EXPECT_EQ(end("squeezenet-cifar", 32), 8);
}

TEST(Catalog, RatesAreTheModelsOwnOrThoseAskedFor) {
  const Result<Model> own = build("efficientnet-b0", {});
  ASSERT_TRUE(own);
  EXPECT_EQ(count(*own, ops::OpKind::kDropout), 1u);
  EXPECT_EQ(count(*own, ops::OpKind::kStochasticDepth), 9u);  // blocks with a shortcut
  const auto last = std::find_if(own->nodes.rbegin(), own->nodes.rend(), [](const Node& node) {
    return node.kind == ops::OpKind::kStochasticDepth;
  });
  EXPECT_EQ(last->name, "features.6.3.stochastic_depth");
  EXPECT_FLOAT_EQ(last->attr.rate, 0.2f * 14 / 16);

  const Result<Model> off = build("efficientnet-b0", {.dropout = 0.0f, .stochastic_depth = 0.0f});
  ASSERT_TRUE(off);
  EXPECT_EQ(count(*off, ops::OpKind::kDropout), 0u);
  EXPECT_EQ(count(*off, ops::OpKind::kStochasticDepth), 0u);

  const Result<Model> dropped = build("resnet18", {.dropout = 0.3f});
  ASSERT_TRUE(dropped);
  EXPECT_EQ(count(*dropped, ops::OpKind::kDropout), 1u);
}

TEST(Catalog, TakesARecipeOfTheProgram) {
  const auto recipe = [](Graph& graph, const ModelOptions& options) {
    return graph.linear(graph.flatten(graph.input()), "fc", {.out = options.classes});
  };
  EXPECT_THAT(add_model("Mine!", recipe).error().message, HasSubstr("'Mine!'"));
  EXPECT_THAT(add_model("resnet18", recipe).error().message, HasSubstr("already"));
  ASSERT_TRUE(add_model("of-the-test", recipe));
  const Result<Model> built = build("of-the-test", {.height = 2, .width = 2, .classes = 3});
  ASSERT_TRUE(built);
  EXPECT_EQ(built->parameter_elements(), 3 * 12 + 3);
  EXPECT_FALSE(add_model("of-the-test", recipe));
}

TEST(Catalog, RefusesWhatCannotBe) {
  EXPECT_THAT(refusal("resnet19", {}), HasSubstr("unknown model 'resnet19'; known are resnet18, "));
  EXPECT_THAT(refusal("resnet18", {.height = 0}), HasSubstr("resnet18: input: the shape 0x32x3"));
  EXPECT_THAT(refusal("mlp", {.channels = -3}), HasSubstr("32x32x-3"));
  EXPECT_THAT(refusal("mlp", {.dropout = 1.5f}), HasSubstr("dropout: the rate is 1.5"));
  EXPECT_THAT(refusal("squeezenet", {.height = 8, .width = 8}),
              HasSubstr("features.5: a 3x3 kernel does not fit the input 1x1x128"));
  EXPECT_THAT(refusal("resnet18", {.stochastic_depth = 0.1f}), HasSubstr("no place"));
  EXPECT_THAT(refusal("efficientnet-b0", {.stochastic_depth = -1.0f}), HasSubstr("rate"));
  for (const CatalogEntry& entry : catalog())
    for (const int64_t classes : {0, -5})
      EXPECT_THAT(refusal(entry.name, {.classes = classes}), HasSubstr(std::to_string(classes)));
  for (const double width : {0.0, -1.0, 1e9, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THAT(refusal("resnet18", {.width_multiplier = width}), HasSubstr("the width is"));
}

TEST(Layers, MakeDivisibleRoundsAsTorchvision) {
  EXPECT_EQ(make_divisible(1), 8);
  EXPECT_EQ(make_divisible(11.9), 16);  // 8 would lose more than a tenth
  EXPECT_EQ(make_divisible(32 * 0.75), 24);
  EXPECT_EQ(make_divisible(24 * 1.4), 32);
  EXPECT_EQ(make_divisible(12), 16);
}

}  // namespace
}  // namespace tri::nn
