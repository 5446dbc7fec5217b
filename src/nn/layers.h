#pragma once
// Room: nn. Groups of layers that several models share, and how widths scale channels.
#include <cstdint>
#include <string>

#include "tri/graph.h"

namespace tri::nn {

// Convolution without bias, "He" normal over the fan out: what torchvision's residual and mobile
// networks use throughout. Padding keeps the size at stride 1.
ConvOptions he_conv(int64_t out, int64_t kernel, int64_t stride = 1, int64_t groups = 1);

// conv -> batch norm under the names CONV and NORM.
Tensor conv_norm(Graph& graph, Tensor x, const std::string& conv, const std::string& norm,
                 const ConvOptions& options);

// round(channels * width), at least 1.
int64_t scale_channels(int64_t channels, double width);

// torchvision's _make_divisible: the nearest multiple of 8, at least 8 and at least 90 % of value.
int64_t make_divisible(double value);

}  // namespace tri::nn
