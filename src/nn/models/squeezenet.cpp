// SqueezeNet 1.1 as torchvision's squeezenet1_1. The -cifar stem has stride 1 and padding 1, and
// the first max pool is an identity (names stay), so 32 px end as 8x8. The width scales every
// layer.
#include <fmt/format.h>

#include "nn/catalog.h"
#include "nn/layers.h"

namespace tri::nn {
namespace {

ConvOptions conv(int64_t out, int64_t kernel, int64_t stride, int64_t padding) {
  return {.out = out,
          .kernel = kernel,
          .stride = stride,
          .padding = padding,
          .init = InitRule::kaiming_uniform(),
          .bias_init = InitRule::constant(0)};
}

Tensor fire(Graph& graph, Tensor x, const std::string& name, int64_t squeeze, int64_t expand) {
  x = graph.relu(graph.conv(x, name + ".squeeze", conv(squeeze, 1, 1, 0)));
  const Tensor narrow = graph.relu(graph.conv(x, name + ".expand1x1", conv(expand, 1, 1, 0)));
  const Tensor wide = graph.relu(graph.conv(x, name + ".expand3x3", conv(expand, 3, 1, 1)));
  return graph.concat({narrow, wide}, name + ".concat");
}

Tensor squeezenet11(Graph& graph, const ModelOptions& options, bool cifar) {
  const auto scaled = [&](int64_t channels) {
    return scale_channels(channels, options.width_multiplier);
  };
  const auto pool = [&](Tensor x, const char* name) {
    return graph.max_pool(x, {.kernel = 3, .stride = 2, .ceil_mode = true}, name);
  };
  const ConvOptions stem = cifar ? conv(scaled(64), 3, 1, 1) : conv(scaled(64), 3, 2, 0);
  Tensor x = graph.relu(graph.conv(graph.input(), "features.0", stem), "features.1");
  if (!cifar) x = pool(x, "features.2");
  x = fire(graph, x, "features.3", scaled(16), scaled(64));
  x = fire(graph, x, "features.4", scaled(16), scaled(64));
  x = pool(x, "features.5");
  x = fire(graph, x, "features.6", scaled(32), scaled(128));
  x = fire(graph, x, "features.7", scaled(32), scaled(128));
  x = pool(x, "features.8");
  x = fire(graph, x, "features.9", scaled(48), scaled(192));
  x = fire(graph, x, "features.10", scaled(48), scaled(192));
  x = fire(graph, x, "features.11", scaled(64), scaled(256));
  x = fire(graph, x, "features.12", scaled(64), scaled(256));
  x = graph.dropout(x, options.dropout.value_or(0.5f), "classifier.0");
  x = graph.conv(
      x, "classifier.1",
      {.out = options.classes, .init = InitRule::normal(0.01), .bias_init = InitRule::constant(0)});
  return graph.global_avg_pool(graph.relu(x, "classifier.2"), "classifier.3");
}

}  // namespace

Tensor squeezenet(Graph& graph, const ModelOptions& options) {
  return squeezenet11(graph, options, false);
}

Tensor squeezenet_cifar(Graph& graph, const ModelOptions& options) {
  return squeezenet11(graph, options, true);
}

}  // namespace tri::nn
