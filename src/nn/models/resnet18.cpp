// ResNet-18 as torchvision's resnet18. The -cifar stem is 3x3, stride 1, without max pool (maxpool
// is an identity, names stay). The width scales the 64 base channels, and with them every layer.
#include <fmt/format.h>

#include "nn/catalog.h"
#include "nn/layers.h"

namespace tri::nn {
namespace {

Tensor basic_block(Graph& graph, Tensor x, const std::string& name, int64_t out, int64_t stride) {
  Tensor y = conv_norm(graph, x, name + ".conv1", name + ".bn1", he_conv(out, 3, stride));
  y = graph.relu(y);
  y = conv_norm(graph, y, name + ".conv2", name + ".bn2", he_conv(out, 3));
  Tensor shortcut = x;
  if (stride != 1 || graph.size(x).channels != out)
    shortcut = conv_norm(graph, x, name + ".downsample.0", name + ".downsample.1",
                         he_conv(out, 1, stride));
  return graph.relu(graph.add(y, shortcut, name + ".add"), name + ".relu");
}

Tensor after_stem(Graph& graph, Tensor x, const ModelOptions& options, int64_t base) {
  for (int stage = 0; stage < 4; ++stage) {
    const int64_t out = base << stage;
    for (int block = 0; block < 2; ++block)
      x = basic_block(graph, x, fmt::format("layer{}.{}", stage + 1, block), out,
                      stage > 0 && block == 0 ? 2 : 1);
  }
  x = graph.global_avg_pool(x, "avgpool");
  x = graph.dropout(x, options.dropout.value_or(0.0f), "dropout");
  return graph.linear(x, "fc", {.out = options.classes});
}

}  // namespace

Tensor resnet18(Graph& graph, const ModelOptions& options) {
  const int64_t base = scale_channels(64, options.width_multiplier);
  Tensor x = conv_norm(graph, graph.input(), "conv1", "bn1", he_conv(base, 7, 2));
  x = graph.max_pool(graph.relu(x, "relu"), {.kernel = 3, .stride = 2, .padding = 1}, "maxpool");
  return after_stem(graph, x, options, base);
}

Tensor resnet18_cifar(Graph& graph, const ModelOptions& options) {
  const int64_t base = scale_channels(64, options.width_multiplier);
  const Tensor x = conv_norm(graph, graph.input(), "conv1", "bn1", he_conv(base, 3));
  return after_stem(graph, graph.relu(x, "relu"), options, base);
}

}  // namespace tri::nn
