#include "tri/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "nn/model.h"

namespace tri {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr ImageSize kImage{.height = 8, .width = 6, .channels = 3};

std::string refusal(const Graph& graph, Tensor output) {
  const Result<Network> network = graph.finish(output);
  if (network) return "accepted";
  EXPECT_EQ(network.error().code, ErrorCode::kInvalid);
  return network.error().message;
}

TEST(Graph, BecomesAModel) {
  Graph graph("net", kImage);
  const Tensor stem =
      graph.conv(graph.input(), "conv", {.out = 4, .kernel = {3, 1}, .padding = {1, 0}});
  Tensor x = graph.relu(graph.batch_norm(stem, "bn"));
  x = graph.add(x, stem, "sum");
  x = graph.linear(graph.flatten(x), "fc", {.out = 10});
  const Result<Network> network = graph.finish(x);
  ASSERT_TRUE(network) << network.error().message;
  EXPECT_EQ(network->name(), "net");
  EXPECT_EQ(network->classes(), 10);
  EXPECT_EQ(network->parameter_count(), 4 * 3 * 3 + 4 + 4 + 4 + 10 * 192 + 10);

  const nn::Model& model = nn::model_of(*network);
  std::vector<std::string> names;
  for (const nn::Parameter& parameter : model.parameters) names.push_back(parameter.name);
  EXPECT_THAT(names, ElementsAre("conv.weight", "conv.bias", "bn.weight", "bn.bias", "fc.weight",
                                 "fc.bias"));
  EXPECT_THAT(model.parameters[0].dims, ElementsAre(4, 3, 3, 1));
  ASSERT_EQ(model.nodes.size(), 7u);
  EXPECT_EQ(model.nodes[3].name, "bn/activation");
  EXPECT_THAT(model.nodes[4].inputs, ElementsAre(3, 1));
  EXPECT_EQ(model.nodes[6].attr.flattened_from, (tensor::Shape{8, 6, 4}));
  EXPECT_EQ(model.nodes[2].weight, 2);
  EXPECT_EQ(model.nodes[2].bias, 3);
  EXPECT_EQ(model.output, 6);
  EXPECT_EQ(model.layers, 2);
  EXPECT_EQ(model.nodes[0].layer, -1);
  EXPECT_EQ(model.nodes[5].layer, 0);
  EXPECT_EQ(model.nodes[6].layer, 1);
}

TEST(Graph, ResolvesFansAsPytorchDoes) {
  Graph graph("net", {.height = 4, .width = 4, .channels = 8});
  const auto conv = [&](Tensor x, const char* name, InitRule init) {
    return graph.conv(x, name, {.out = 16, .kernel = 3, .padding = 1, .groups = 4, .init = init});
  };
  Tensor x = conv(graph.input(), "default", InitRule::pytorch());
  x = conv(x, "normal", InitRule::kaiming_normal());
  x = conv(x, "uniform", InitRule::kaiming_uniform());
  const Result<Network> network = graph.finish(graph.global_avg_pool(x));
  ASSERT_TRUE(network);
  const auto& parameters = nn::model_of(*network).parameters;
  // fan in = channels of a group x window; fan out = all outputs x window, whatever the groups.
  EXPECT_DOUBLE_EQ(parameters[0].init.spread, 1 / std::sqrt(2.0 * 9));
  EXPECT_DOUBLE_EQ(parameters[1].init.spread, 1 / std::sqrt(2.0 * 9));
  EXPECT_DOUBLE_EQ(parameters[2].init.spread, std::sqrt(2.0 / (16 * 9)));
  EXPECT_DOUBLE_EQ(parameters[4].init.spread, std::sqrt(6.0 / (4 * 9)));
}

TEST(Graph, ARateOfZeroAddsNoLayer) {
  Graph graph("net", kImage);
  Tensor x = graph.global_avg_pool(graph.input());
  x = graph.stochastic_depth(graph.dropout(x, 0.0f), 0.0f);
  const Result<Network> network = graph.finish(graph.linear(x, "fc", {.out = 2}));
  ASSERT_TRUE(network);
  EXPECT_EQ(nn::model_of(*network).nodes.size(), 3u);
}

TEST(Graph, TheFirstMistakeComesBackWithLayerAndShapes) {
  Graph graph("net", kImage);
  const Tensor a = graph.conv(graph.input(), "a", {.out = 4});
  const Tensor b = graph.conv(graph.input(), "b", {.out = 5});
  const Tensor sum = graph.add(a, b, "sum");
  const Tensor later = graph.linear(sum, "fc", {.out = -3});
  EXPECT_THAT(refusal(graph, later),
              AllOf(HasSubstr("net: sum: "), HasSubstr("8x6x4"), HasSubstr("8x6x5")));
}

TEST(Graph, RefusesWhatIsNotItsTensor) {
  Graph one("one", kImage), two("two", kImage);
  two.linear(one.global_avg_pool(one.input()), "fc", {.out = 2});
  EXPECT_THAT(refusal(two, two.input()), HasSubstr("fc: an input is a tensor of another graph"));
  EXPECT_THAT(refusal(one, two.input()), HasSubstr("not a tensor of this graph"));
  EXPECT_THAT(refusal(one, Tensor()), HasSubstr("not a tensor of this graph"));
  EXPECT_EQ(one.size(two.input()).channels, 0);

  Graph three("three", kImage);
  three.relu(Tensor());
  EXPECT_THAT(refusal(three, three.input()), HasSubstr("empty tensor"));
}

TEST(Graph, RefusesBadSizes) {
  for (const int64_t bad : {0, -1}) {
    Graph input("net", {.height = bad, .width = 4, .channels = 3});
    EXPECT_THAT(refusal(input, input.input()), HasSubstr("net: input: "));
    Graph conv("net", kImage);
    EXPECT_THAT(refusal(conv, conv.conv(conv.input(), "c", {.out = 4, .kernel = bad})),
                HasSubstr("c: kernel height is"));
    Graph groups("net", kImage);
    EXPECT_THAT(refusal(groups, groups.conv(groups.input(), "c", {.out = 4, .groups = bad})),
                HasSubstr("c: the number of groups is"));
  }
  Graph huge("net", {.height = 1, .width = 1, .channels = 1 << 20});
  EXPECT_THAT(refusal(huge, huge.linear(huge.input(), "fc", {.out = 1 << 24})),
              HasSubstr("fc: the weight 16777216x1048576 would have more than"));
}

TEST(Graph, RefusesNamesUsedTwice) {
  Graph graph("net", kImage);
  const Tensor x = graph.conv(graph.input(), "conv", {.out = 4});
  EXPECT_THAT(refusal(graph, graph.conv(x, "conv", {.out = 4})),
              HasSubstr("conv: the name is used twice"));
}

TEST(Graph, NamelessLayersNeverCollide) {
  Graph graph("net", kImage);
  const Tensor a = graph.relu(graph.input());
  const Tensor b = graph.relu(graph.input());
  const Tensor x = graph.concat({a, b, graph.relu(graph.input())});
  EXPECT_TRUE(graph.finish(graph.linear(graph.global_avg_pool(x), "fc", {.out = 2})));
}

TEST(Graph, RefusesLayersThatLeadNowhere) {
  Graph graph("net", kImage);
  const Tensor x = graph.conv(graph.input(), "conv", {.out = 4});
  graph.conv(x, "forgotten", {.out = 4});
  EXPECT_THAT(refusal(graph, graph.global_avg_pool(x)), HasSubstr("forgotten: its output 8x6x4"));
}

TEST(Graph, RefusesAnOutputThatIsNoVector) {
  Graph image("net", kImage);
  EXPECT_THAT(refusal(image, image.conv(image.input(), "c", {.out = 2})), HasSubstr("8x6x2"));
  Graph flat("net", kImage);
  EXPECT_THAT(refusal(flat, flat.flatten(flat.conv(flat.input(), "c", {.out = 2}))),
              HasSubstr("8x6x2"));
  Graph empty("net", kImage);
  EXPECT_THAT(refusal(empty, empty.global_avg_pool(empty.input())), HasSubstr("no parameters"));
}

// Flattening runs through channels first in PyTorch and last here; only linear can undo that.
TEST(Graph, FollowsAFlattenedImageToItsLinear) {
  Graph good("net", kImage);
  Tensor x = good.dropout(good.relu(good.flatten(good.input())), 0.5f);
  x = good.linear(x, "fc", {.out = 3});
  const Result<Network> network = good.finish(good.batch_norm(x, "bn"));
  ASSERT_TRUE(network) << network.error().message;
  EXPECT_EQ(nn::model_of(*network).nodes[4].attr.flattened_from, (tensor::Shape{8, 6, 3}));

  Graph bad("net", kImage);
  const Tensor normed = bad.batch_norm(bad.flatten(bad.input()), "bn");
  EXPECT_THAT(refusal(bad, bad.linear(normed, "fc", {.out = 3})),
              AllOf(HasSubstr("bn: "), HasSubstr("1x1x144"), HasSubstr("8x6x3")));

  Graph mixed("net", kImage);
  const Tensor pooled = mixed.conv(mixed.global_avg_pool(mixed.input()), "c", {.out = 144});
  EXPECT_THAT(refusal(mixed, mixed.add(pooled, mixed.flatten(mixed.input()), "sum")),
              HasSubstr("sum: "));
}

}  // namespace
}  // namespace tri
