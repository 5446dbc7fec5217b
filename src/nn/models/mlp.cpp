// Two hidden layers of 512 (times the width) with ReLU, for any image.
#include "nn/catalog.h"
#include "nn/layers.h"

namespace tri::nn {

Tensor mlp(Graph& graph, const ModelOptions& options) {
  const int64_t hidden = scale_channels(512, options.width_multiplier);
  Tensor x = graph.flatten(graph.input(), "flatten");
  x = graph.relu(graph.linear(x, "fc1", {.out = hidden}), "relu1");
  x = graph.relu(graph.linear(x, "fc2", {.out = hidden}), "relu2");
  x = graph.dropout(x, options.dropout.value_or(0.0f), "dropout");
  return graph.linear(x, "fc3", {.out = options.classes});
}

}  // namespace tri::nn
