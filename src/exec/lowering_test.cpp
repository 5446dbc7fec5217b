#include "exec/lowering.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "tri/graph.h"

namespace tri::exec {
namespace {

using ops::Activation;
using testing::ElementsAre;

class LoweringTest : public testing::Test {
 protected:
  Graph graph{"net", {.height = 4, .width = 4, .channels = 2}};

  Tensor conv(Tensor x, const char* name) {
    return graph.conv(x, name, {.out = 4, .kernel = 3, .padding = 1});
  }
  // Finishes with a head that reads `x`, and lowers.
  const Lowered& lowered(Tensor x, LoweringOptions options = {}) {
    Result<Network> network =
        graph.finish(graph.linear(graph.global_avg_pool(x, "pool"), "head", {.out = 3}));
    EXPECT_TRUE(network.has_value()) << network.error().message;
    network_.emplace(*std::move(network));
    result_ = lower(nn::model_of(*network_), options);
    return result_;
  }
  static std::vector<std::string> ops_of(const Lowered& l) {
    std::vector<std::string> names;
    for (const LoweredOp& op : l.ops) names.push_back(op.name);
    return names;
  }

 private:
  std::optional<Network> network_;
  Lowered result_;
};

TEST_F(LoweringTest, conv_norm_activation_store_one_tensor) {
  const Lowered& l = lowered(graph.relu(graph.batch_norm(conv(graph.input(), "c"), "n")));
  EXPECT_THAT(ops_of(l), ElementsAre("c", "pool", "head"));
  const LoweredTensor& t = l.tensors[1];
  EXPECT_EQ(t.norm, 0);
  EXPECT_EQ(t.activation, Activation::kRelu);
  EXPECT_EQ(l.ops[1].inputs, std::vector<int>{1});
}

TEST_F(LoweringTest, with_the_switch_every_transformed_value_is_stored) {
  const Lowered& l = lowered(graph.relu(graph.batch_norm(conv(graph.input(), "c"), "n")),
                             {.training = true, .store = true});
  EXPECT_THAT(ops_of(l), ElementsAre("c", "c/stored", "pool", "head"));
  EXPECT_EQ(l.tensors[1].activation, Activation::kRelu);
  EXPECT_EQ(l.tensors[2].activation, Activation::kNone);
  EXPECT_EQ(l.ops[2].inputs, std::vector<int>{2});
}

// The conv's value and its ReLU are both read: they cannot be one tensor.
TEST_F(LoweringTest, a_value_with_another_reader_keeps_its_transform) {
  const Tensor x = conv(graph.input(), "c");
  const Lowered& l = lowered(graph.add(graph.relu(x), x, "sum"));
  EXPECT_THAT(ops_of(l), ElementsAre("c", "c/stored", "sum", "pool", "head"));
  EXPECT_EQ(l.tensors[1].activation, Activation::kNone);
  EXPECT_EQ(l.tensors[2].activation, Activation::kRelu);
  EXPECT_EQ(l.ops[2].inputs, (std::vector<int>{2, 1}));
}

TEST_F(LoweringTest, a_norm_behind_an_activation_gets_a_tensor_of_its_own) {
  const Lowered& l = lowered(graph.batch_norm(graph.silu(conv(graph.input(), "c")), "n"));
  EXPECT_THAT(ops_of(l), ElementsAre("c", "c/stored", "pool", "head"));
  EXPECT_EQ(l.tensors[1].norm, -1);
  EXPECT_EQ(l.norms.at(0).tensor, 2);
}

// Nothing runs when the input is there, so nobody could compute its statistics.
TEST_F(LoweringTest, the_input_is_never_transformed) {
  const Tensor x = graph.batch_norm(graph.dropout(graph.input(), 0.5f), "n");
  const Lowered& l = lowered(conv(graph.relu(x), "c"), {.training = false, .store = false});
  EXPECT_EQ(l.tensors[0].norm, -1);
  EXPECT_EQ(l.tensors[0].activation, Activation::kNone);
  EXPECT_THAT(ops_of(l), ElementsAre("input/stored", "c", "pool", "head"));
}

TEST_F(LoweringTest, squeeze_excite_is_a_factor_without_bytes) {
  const Tensor x = graph.silu(conv(graph.input(), "c"));
  const Tensor f = graph.sigmoid(
      graph.conv(graph.global_avg_pool(x, "squeeze"), "excite", {.out = 4, .kernel = 1}));
  const Lowered& l = lowered(graph.scale(x, f, "product"));
  EXPECT_THAT(ops_of(l), ElementsAre("c", "squeeze", "excite", "product", "pool", "head"));
  const LoweredTensor& product = l.tensors[4];
  EXPECT_EQ(product.scaled, 1);
  EXPECT_EQ(l.factors.at(static_cast<size_t>(product.factor)).source, 3);
}

TEST_F(LoweringTest, evaluation_drops_nothing) {
  Tensor x = graph.stochastic_depth(conv(graph.input(), "c"), 0.5f);
  x = graph.dropout(x, 0.5f, "drop");
  const Lowered& l = lowered(x, {.training = false, .store = false});
  EXPECT_THAT(ops_of(l), ElementsAre("c", "pool", "head"));
  EXPECT_TRUE(l.depths.empty());
}

TEST_F(LoweringTest, training_draws_depth_on_load_and_dropout_by_a_kernel) {
  Tensor x = graph.stochastic_depth(conv(graph.input(), "c"), 0.5f);
  x = graph.dropout(x, 0.5f, "drop");
  const Lowered& l = lowered(x);
  EXPECT_THAT(ops_of(l), ElementsAre("c", "drop", "pool", "head"));
  EXPECT_EQ(l.tensors[1].depth, 0);
}

}  // namespace
}  // namespace tri::exec
