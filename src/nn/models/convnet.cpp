// Three 3x3 convolutions of 32, 64 and 128 channels (times the width), each with norm and ReLU, a
// 2x2 max pool after the first two: enough for Fashion-MNIST and quick to train.
#include "nn/catalog.h"
#include "nn/layers.h"

namespace tri::nn {

Tensor convnet(Graph& graph, const ModelOptions& options) {
  const auto conv = [&](int64_t channels) {
    return he_conv(scale_channels(channels, options.width_multiplier), 3);
  };
  Tensor x = graph.relu(conv_norm(graph, graph.input(), "conv1", "bn1", conv(32)), "relu1");
  x = graph.max_pool(x, {.kernel = 2}, "pool1");
  x = graph.relu(conv_norm(graph, x, "conv2", "bn2", conv(64)), "relu2");
  x = graph.max_pool(x, {.kernel = 2}, "pool2");
  x = graph.relu(conv_norm(graph, x, "conv3", "bn3", conv(128)), "relu3");
  x = graph.global_avg_pool(x, "avgpool");
  x = graph.dropout(x, options.dropout.value_or(0.0f), "dropout");
  return graph.linear(x, "fc", {.out = options.classes});
}

}  // namespace tri::nn
