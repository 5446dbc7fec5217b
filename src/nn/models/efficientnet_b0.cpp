// EfficientNet-B0 as torchvision's efficientnet_b0; the width multiplier is torchvision's
// width_mult, the depth stays.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "nn/catalog.h"
#include "nn/layers.h"

namespace tri::nn {
namespace {

struct MbStage {
  int64_t expansion, kernel, stride, channels, blocks;
};

constexpr MbStage kMbStages[] = {{1, 3, 1, 16, 1}, {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2},
                                 {6, 3, 2, 80, 3}, {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4},
                                 {6, 3, 1, 320, 1}};
constexpr int kMbBlocks = 16;

Tensor conv_norm_silu(Graph& graph, Tensor x, const std::string& name, const ConvOptions& conv) {
  return graph.silu(conv_norm(graph, x, name + ".0", name + ".1", conv), name + ".2");
}

Tensor squeeze_excite(Graph& graph, Tensor x, const std::string& name, int64_t squeezed) {
  const auto conv = [](int64_t out) {
    return ConvOptions{
        .out = out, .init = InitRule::kaiming_normal(), .bias_init = InitRule::constant(0)};
  };
  Tensor factors = graph.global_avg_pool(x, name + ".avgpool");
  factors = graph.silu(graph.conv(factors, name + ".fc1", conv(squeezed)));
  factors = graph.sigmoid(graph.conv(factors, name + ".fc2", conv(graph.size(x).channels)));
  return graph.scale(x, factors, name + ".scale");
}

Tensor mbconv(Graph& graph, Tensor x, const std::string& name, const MbStage& stage, int64_t out,
              int64_t stride, float drop_rate) {
  const int64_t in = graph.size(x).channels;
  const int64_t hidden = make_divisible(static_cast<double>(in * stage.expansion));
  int index = 0;
  const auto next = [&] { return fmt::format("{}.block.{}", name, index++); };
  Tensor y = x;
  if (hidden != in) y = conv_norm_silu(graph, y, next(), he_conv(hidden, 1));
  y = conv_norm_silu(graph, y, next(), he_conv(hidden, stage.kernel, stride, hidden));
  y = squeeze_excite(graph, y, next(), std::max<int64_t>(1, in / 4));
  const std::string project = next();
  y = conv_norm(graph, y, project + ".0", project + ".1", he_conv(out, 1));
  if (stride != 1 || in != out) return y;
  y = graph.stochastic_depth(y, drop_rate, name + ".stochastic_depth");
  return graph.add(y, x, name + ".add");
}

}  // namespace

Tensor efficientnet_b0(Graph& graph, const ModelOptions& options) {
  const auto scaled = [&](int64_t channels) {
    return make_divisible(static_cast<double>(channels) * options.width_multiplier);
  };
  const float depth_rate = options.stochastic_depth.value_or(0.2f);

  Tensor x = conv_norm_silu(graph, graph.input(), "features.0", he_conv(scaled(32), 3, 2));
  int stage_index = 1;
  int blocks_before = 0;
  for (const MbStage& stage : kMbStages) {
    for (int64_t block = 0; block < stage.blocks; ++block, ++blocks_before)
      x = mbconv(graph, x, fmt::format("features.{}.{}", stage_index, block), stage,
                 scaled(stage.channels), block == 0 ? stage.stride : 1,
                 depth_rate * static_cast<float>(blocks_before) / kMbBlocks);
    ++stage_index;
  }
  x = conv_norm_silu(graph, x, fmt::format("features.{}", stage_index),
                     he_conv(4 * graph.size(x).channels, 1));
  x = graph.global_avg_pool(x, "avgpool");
  x = graph.dropout(x, options.dropout.value_or(0.2f), "classifier.0");
  const double bound = 1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(1, options.classes)));
  return graph.linear(x, "classifier.1",
                      {.out = options.classes,
                       .init = InitRule::uniform(bound),
                       .bias_init = InitRule::constant(0)});
}

}  // namespace tri::nn
