// ShuffleNet-v2 as torchvision's shufflenet_v2_x0_5, x1_0, x1_5 and x2_0. Any other width scales
// the stages of x1_0, rounded to even numbers; stem and conv5 stay. The -cifar stem has stride 1
// and no max pool (maxpool is an identity, names stay), so 32 px end as 4x4.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "nn/catalog.h"
#include "nn/layers.h"

namespace tri::nn {
namespace {

constexpr int kStemChannels = 24;
constexpr int kBlocks[] = {4, 8, 4};

struct Widths {
  double multiplier;
  std::array<int64_t, 3> stages;
  int64_t conv5;
};

constexpr Widths kPublished[] = {{1.0, {116, 232, 464}, 1024},
                                 {0.5, {48, 96, 192}, 1024},
                                 {1.5, {176, 352, 704}, 1024},
                                 {2.0, {244, 488, 976}, 2048}};

Widths widths(double multiplier) {
  for (const Widths& published : kPublished)
    if (published.multiplier == multiplier) return published;
  Widths scaled = kPublished[0];
  for (int64_t& channels : scaled.stages) channels = 2 * scale_channels(channels / 2, multiplier);
  return scaled;
}

// PyTorch's default initialisation, which torchvision keeps here.
ConvOptions plain_conv(int64_t out, int64_t kernel, int64_t stride = 1, int64_t groups = 1) {
  ConvOptions options = he_conv(out, kernel, stride, groups);
  options.init = InitRule::pytorch();
  return options;
}

// Layers NAME.FIRST (conv) and the next one (norm) of a torch Sequential.
Tensor conv_norm_at(Graph& graph, Tensor x, const std::string& name, int first,
                    const ConvOptions& conv) {
  return conv_norm(graph, x, fmt::format("{}.{}", name, first),
                   fmt::format("{}.{}", name, first + 1), conv);
}

Tensor main_branch(Graph& graph, Tensor x, const std::string& name, int64_t half, int64_t stride) {
  x = graph.relu(conv_norm_at(graph, x, name, 0, plain_conv(half, 1)));
  x = conv_norm_at(graph, x, name, 3, plain_conv(half, 3, stride, half));
  return graph.relu(conv_norm_at(graph, x, name, 5, plain_conv(half, 1)));
}

Tensor down_block(Graph& graph, Tensor x, const std::string& name, int64_t out) {
  const int64_t in = graph.size(x).channels;
  const std::string branch = name + ".branch1";
  Tensor left = conv_norm_at(graph, x, branch, 0, plain_conv(in, 3, 2, in));
  left = graph.relu(conv_norm_at(graph, left, branch, 2, plain_conv(out / 2, 1)));
  const Tensor right = main_branch(graph, x, name + ".branch2", out / 2, 2);
  return graph.channel_shuffle(graph.concat({left, right}, name + ".concat"), 2, name + ".shuffle");
}

Tensor plain_block(Graph& graph, Tensor x, const std::string& name) {
  const int64_t half = graph.size(x).channels / 2;
  const Tensor left = graph.split(x, 0, half, name + ".left");
  const Tensor right =
      main_branch(graph, graph.split(x, half, half, name + ".right"), name + ".branch2", half, 1);
  return graph.channel_shuffle(graph.concat({left, right}, name + ".concat"), 2, name + ".shuffle");
}

Tensor shufflenet(Graph& graph, const ModelOptions& options, bool cifar) {
  const Widths channels = widths(options.width_multiplier);
  Tensor x =
      conv_norm_at(graph, graph.input(), "conv1", 0, plain_conv(kStemChannels, 3, cifar ? 1 : 2));
  x = graph.relu(x);
  if (!cifar) x = graph.max_pool(x, {.kernel = 3, .stride = 2, .padding = 1}, "maxpool");
  for (int stage = 0; stage < 3; ++stage) {
    const std::string name = fmt::format("stage{}", stage + 2);
    x = down_block(graph, x, name + ".0", channels.stages[static_cast<size_t>(stage)]);
    for (int block = 1; block < kBlocks[stage]; ++block)
      x = plain_block(graph, x, fmt::format("{}.{}", name, block));
  }
  x = graph.relu(conv_norm_at(graph, x, "conv5", 0, plain_conv(channels.conv5, 1)));
  x = graph.global_avg_pool(x, "globalpool");
  x = graph.dropout(x, options.dropout.value_or(0.0f), "dropout");
  return graph.linear(x, "fc", {.out = options.classes});
}

}  // namespace

Tensor shufflenet_v2(Graph& graph, const ModelOptions& options) {
  return shufflenet(graph, options, false);
}

Tensor shufflenet_v2_cifar(Graph& graph, const ModelOptions& options) {
  return shufflenet(graph, options, true);
}

}  // namespace tri::nn
