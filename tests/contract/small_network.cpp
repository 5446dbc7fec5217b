#include "contract/small_network.h"

#include <gtest/gtest.h>

namespace tri::contract {

std::shared_ptr<const nn::Model> finish(const Graph& graph, Tensor logits) {
  Result<Network> network = graph.finish(logits);
  EXPECT_TRUE(network.has_value()) << network.error().message;
  return std::make_shared<const nn::Model>(nn::model_of(*network));
}

std::shared_ptr<const nn::Model> small_network() {
  Graph graph("small", {.height = 6, .width = 5, .channels = 3});
  Tensor x = graph.conv(graph.input(), "stem", {.out = 20, .kernel = 3, .padding = 1});
  x = graph.silu(graph.batch_norm(x, "norm1"));
  Tensor y = graph.conv(x, "wide", {.out = 20, .kernel = 5, .padding = 2, .bias = false});
  y = graph.relu(graph.batch_norm(y, "norm2"));
  y = graph.conv(y, "depthwise", {.out = 20, .kernel = 3, .padding = 1, .groups = 20});
  x = graph.relu(graph.add(graph.batch_norm(y, "norm3"), x));
  x = graph.conv(x, "grouped", {.out = 12, .kernel = 3, .stride = 2, .groups = 4, .bias = false});
  x = graph.dropout(graph.flatten(graph.global_avg_pool(x)), 0.2f);
  return finish(graph, graph.linear(x, "head", {.out = 7}));
}

std::vector<Bytes> persistent(exec::Engine& engine) {
  std::vector<Bytes> all;
  const exec::Parameters& parameters = engine.parameters();
  for (size_t p = 0; p < parameters.size(); ++p) {
    const exec::ParameterSlot& slot = parameters.slot(p);
    all.emplace_back(slot.storage.main, slot.storage.main + slot.weight_bytes);
    if (slot.state_bytes > 0)
      all.emplace_back(slot.storage.first, slot.storage.first + slot.state_bytes);
  }
  for (size_t n = 0; n < engine.model().nodes.size(); ++n) {
    if (engine.model().nodes[n].kind != ops::OpKind::kBatchNorm) continue;
    for (const std::span<float> running : {parameters.running_mean(static_cast<int>(n)),
                                           parameters.running_variance(static_cast<int>(n))}) {
      const auto bytes = std::as_bytes(running);
      all.emplace_back(bytes.begin(), bytes.end());
    }
  }
  return all;
}

std::vector<exec::LayerFormats> table(const nn::Model& model, exec::LayerFormats row) {
  return std::vector<exec::LayerFormats>(static_cast<size_t>(model.layers), row);
}

void set_rates(exec::Engine& engine) {
  for (optim::Hyper& hyper : engine.hypers()) {
    hyper.lr = 0.02;
    hyper.weight_decay = 0.01;
  }
}

Trained train(const std::shared_ptr<const nn::Model>& model, const exec::EngineOptions& options,
              size_t threads, uint64_t steps) {
  base::ThreadPool pool(threads);
  const Problem problem = draw_problem(*model, 3, options.step.samples, options.step.ghost);
  const auto engine = engine_for(model, problem, options);
  set_rates(*engine);
  Trained trained;
  for (uint64_t step = 1; step <= steps; ++step)
    trained.losses.push_back(engine->train(0, {step}, pool).loss.loss);
  trained.bytes = persistent(*engine);
  return trained;
}

}  // namespace tri::contract
