// MobileNet-v2 as torchvision's mobilenet_v2, its width multiplier included. The -cifar form has
// stride 1 in the stem and in the second stage (24 channels), so 32 px end as 4x4.
#include <fmt/format.h>

#include <algorithm>

#include "nn/catalog.h"
#include "nn/layers.h"

namespace tri::nn {
namespace {

struct Stage {
  int64_t expansion, channels, blocks, stride;
};

constexpr Stage kStages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                             {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};

Tensor conv_norm_relu6(Graph& graph, Tensor x, const std::string& name, const ConvOptions& conv) {
  return graph.relu6(conv_norm(graph, x, name + ".0", name + ".1", conv), name + ".2");
}

Tensor inverted_residual(Graph& graph, Tensor x, const std::string& name, int64_t expansion,
                         int64_t out, int64_t stride) {
  const int64_t in = graph.size(x).channels;
  const int64_t hidden = in * expansion;
  int index = 0;
  const auto next = [&] { return fmt::format("{}.conv.{}", name, index++); };
  Tensor y = x;
  if (expansion != 1) y = conv_norm_relu6(graph, y, next(), he_conv(hidden, 1));
  y = conv_norm_relu6(graph, y, next(), he_conv(hidden, 3, stride, hidden));
  const std::string conv = next(), norm = next();
  y = conv_norm(graph, y, conv, norm, he_conv(out, 1));
  return stride == 1 && in == out ? graph.add(y, x, name + ".add") : y;
}

Tensor mobilenet(Graph& graph, const ModelOptions& options, bool cifar) {
  const double width = options.width_multiplier;
  Tensor x = conv_norm_relu6(graph, graph.input(), "features.0",
                             he_conv(make_divisible(32 * width), 3, cifar ? 1 : 2));
  int index = 1;
  for (const Stage& stage : kStages) {
    const int64_t out = make_divisible(static_cast<double>(stage.channels) * width);
    const int64_t first_stride = cifar && stage.channels == 24 ? 1 : stage.stride;
    for (int64_t block = 0; block < stage.blocks; ++block)
      x = inverted_residual(graph, x, fmt::format("features.{}", index++), stage.expansion, out,
                            block == 0 ? first_stride : 1);
  }
  x = conv_norm_relu6(graph, x, fmt::format("features.{}", index),
                      he_conv(make_divisible(1280 * std::max(1.0, width)), 1));
  x = graph.global_avg_pool(x, "avgpool");
  x = graph.dropout(x, options.dropout.value_or(0.2f), "classifier.0");
  return graph.linear(
      x, "classifier.1",
      {.out = options.classes, .init = InitRule::normal(0.01), .bias_init = InitRule::constant(0)});
}

}  // namespace

Tensor mobilenet_v2(Graph& graph, const ModelOptions& options) {
  return mobilenet(graph, options, false);
}

Tensor mobilenet_v2_cifar(Graph& graph, const ModelOptions& options) {
  return mobilenet(graph, options, true);
}

}  // namespace tri::nn
