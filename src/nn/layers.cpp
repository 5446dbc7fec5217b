#include "nn/layers.h"

#include <algorithm>
#include <cmath>

namespace tri::nn {

ConvOptions he_conv(int64_t out, int64_t kernel, int64_t stride, int64_t groups) {
  return {.out = out,
          .kernel = kernel,
          .stride = stride,
          .padding = (kernel - 1) / 2,
          .groups = groups,
          .bias = false,
          .init = InitRule::kaiming_normal()};
}

Tensor conv_norm(Graph& graph, Tensor x, const std::string& conv, const std::string& norm,
                 const ConvOptions& options) {
  return graph.batch_norm(graph.conv(x, conv, options), norm);
}

int64_t scale_channels(int64_t channels, double width) {
  return std::max<int64_t>(1, std::llround(static_cast<double>(channels) * width));
}

int64_t make_divisible(double value) {
  constexpr int64_t kDivisor = 8;
  const int64_t nearest = static_cast<int64_t>(value + kDivisor / 2.0) / kDivisor * kDivisor;
  const int64_t result = std::max(kDivisor, nearest);
  return static_cast<double>(result) < 0.9 * value ? result + kDivisor : result;
}

}  // namespace tri::nn
