#include "exec/parameters.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "nn/init.h"
#include "tri/graph.h"

namespace tri::exec {
namespace {

using optim::StateForm;
using optim::WeightForm;

nn::Model model() {
  Graph graph("net", {.height = 6, .width = 6, .channels = 3});
  Tensor x = graph.conv(graph.input(), "dense", {.out = 20, .kernel = 3, .padding = 1});
  x = graph.relu(graph.batch_norm(x, "norm"));
  x = graph.conv(x, "depthwise", {.out = 20, .kernel = 3, .groups = 20, .bias = false});
  x = graph.conv(x, "grouped", {.out = 12, .kernel = 1, .groups = 2, .bias = false});
  Result<Network> network = graph.finish(graph.linear(graph.flatten(x), "head", {.out = 5}));
  return nn::model_of(*network);
}

// The largest relative distance of a stored weight from what was set, by form; fp16+8 has an
// absolute one below its normal numbers. See numeric/split.h.
double distance(WeightForm form) {
  switch (form) {
    case WeightForm::kF32:
    case WeightForm::kF32AndBf16:
    case WeightForm::kBf16x16:
      return 0.0;
    case WeightForm::kBf16x8:
      return 0x1p-16;
    case WeightForm::kF16x8:
      return 0x1p-19;
    case WeightForm::kBf16Stochastic:
      return 0x1p-8;
  }
  return 0.0;
}

struct Bound {
  Bound(const nn::Model& model, const StorageForms& forms)
      : parameters(model, forms), memory(parameters.bytes() / sizeof(double) + 8) {
    auto* first = reinterpret_cast<std::byte*>(memory.data());
    parameters.bind(first + (64 - reinterpret_cast<uintptr_t>(first) % 64) % 64);
  }
  Parameters parameters;
  std::vector<double> memory;
};

TEST(ParametersTest, survive_storage_in_pytorchs_order) {
  const nn::Model net = model();
  for (const WeightForm form :
       {WeightForm::kF32, WeightForm::kF32AndBf16, WeightForm::kBf16x16, WeightForm::kBf16x8,
        WeightForm::kF16x8, WeightForm::kBf16Stochastic})
    for (const size_t moments : {0, 1, 2}) {
      Bound bound(net, {form, StateForm::kInt8, moments});
      for (size_t p = 0; p < net.parameters.size(); ++p) {
        std::vector<float> values(static_cast<size_t>(net.parameters[p].elements()));
        nn::draw_initial(net, p, 5, values);
        std::vector<float> back(values.size());
        bound.parameters.set(p, values);
        bound.parameters.get(p, back);
        const bool dense = bound.parameters.slot(p).dense;
        for (size_t i = 0; i < values.size(); ++i)
          ASSERT_NEAR(values[i], back[i],
                      dense ? distance(form) * std::abs(double{values[i]}) + 0x1p-33 : 0.0)
              << net.parameters[p].name << " " << optim::name(form);
      }
    }
}

// Kernels that work in fp32 must see exactly what get() and a checkpoint see.
TEST(ParametersTest, kernels_read_what_is_stored) {
  const nn::Model net = model();
  for (const WeightForm form : {WeightForm::kF32, WeightForm::kF32AndBf16, WeightForm::kBf16x16,
                                WeightForm::kBf16x8, WeightForm::kF16x8}) {
    Bound bound(net, {form, StateForm::kF32, 1});
    for (size_t p = 0; p < net.parameters.size(); ++p) {
      const ParameterSlot& slot = bound.parameters.slot(p);
      if (!slot.dense) continue;
      std::vector<float> values(static_cast<size_t>(net.parameters[p].elements()));
      nn::draw_initial(net, p, 5, values);
      bound.parameters.set(p, values);
      std::vector<float> panels(slot.count), seen(values.size()), stored(values.size());
      ops::load_weights(bound.parameters.weights(p, numeric::Format::kF32), 0,
                        static_cast<int64_t>(slot.count), panels.data());
      ops::unpack_weights(slot.geometry, panels.data(), seen.data());
      bound.parameters.get(p, stored);
      EXPECT_EQ(seen, stored) << net.parameters[p].name << " " << optim::name(form);
    }
  }
}

TEST(ParametersTest, take_the_bytes_they_plan) {
  const nn::Model net = model();
  const Bound bound(net, {WeightForm::kBf16x8, StateForm::kInt8, 2});
  size_t sum = 0;
  for (size_t p = 0; p < bound.parameters.size(); ++p) {
    const ParameterSlot& slot = bound.parameters.slot(p);
    sum += slot.weight_bytes + slot.state_bytes;
    EXPECT_EQ(slot.weight_bytes % 64, 0u);
    EXPECT_EQ(slot.state_bytes % 64, 0u);
  }
  EXPECT_EQ(bound.parameters.by_kind()[memory::Kind::kWeights] +
                bound.parameters.by_kind()[memory::Kind::kState],
            bound.parameters.bytes());
  EXPECT_EQ(bound.parameters.bytes() - sum, 192u) << "20 means and variances, in lines of 64";
}

TEST(ParametersTest, running_statistics_start_at_zero_and_one) {
  const nn::Model net = model();
  const Bound bound(net, {});
  for (size_t n = 0; n < net.nodes.size(); ++n) {
    if (net.nodes[n].kind != ops::OpKind::kBatchNorm) continue;
    for (const float v : bound.parameters.running_mean(static_cast<int>(n))) EXPECT_EQ(v, 0.0f);
    for (const float v : bound.parameters.running_variance(static_cast<int>(n))) EXPECT_EQ(v, 1.0f);
  }
}

}  // namespace
}  // namespace tri::exec
