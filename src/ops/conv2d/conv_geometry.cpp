#include "ops/conv2d/conv_geometry.h"

#include <algorithm>

namespace tri::ops {
namespace {

// How many (output, tap) pairs of one axis touch a real input.
int64_t useful_pairs(int64_t out, int64_t in, int64_t kernel, int64_t stride, int64_t padding) {
  int64_t pairs = 0;
  for (int64_t o = 0; o < out; ++o) {
    const int64_t first = o * stride - padding;
    pairs += std::max<int64_t>(0, std::min(kernel, in - first) - std::max<int64_t>(0, -first));
  }
  return pairs;
}

// Calls visit(oihw index, stored index) for every weight.
template <class Visit>
void for_each_weight(const ConvGeometry& g, Visit visit) {
  const int64_t in = g.group_in(), taps = g.taps();
  for (int64_t o = 0; o < g.out.c; ++o) {
    const int64_t group = o / g.group_out(), within = o % g.group_out();
    for (int64_t i = 0; i < in; ++i) {
      for (int64_t tap = 0; tap < taps; ++tap) {
        const int64_t oihw = (o * in + i) * taps + tap;
        if (g.depthwise()) {
          visit(oihw, tap * g.padded_channels() + o);
        } else {
          const int64_t panel = group * g.panels() + within / kPanel;
          visit(oihw, panel * g.panel_floats() + (tap * in + i) * kPanel + within % kPanel);
        }
      }
    }
  }
}

}  // namespace

int64_t ConvGeometry::useful_macs() const {
  return useful_pairs(out.h, in.h, kernel_h, stride_h, padding_h) *
         useful_pairs(out.w, in.w, kernel_w, stride_w, padding_w) * group_in() * out.c;
}

ConvGeometry conv_geometry(const Attributes& a, const Shape& in, const Shape& out) {
  return {in,         out,         a.kernel_h,  a.kernel_w, a.stride_h,
          a.stride_w, a.padding_h, a.padding_w, a.groups};
}

ConvGeometry linear_geometry(const Attributes& a, const Shape& in) {
  const Shape image = a.flattened_from.elements() == in.elements() ? a.flattened_from : in;
  return {image, Shape{1, 1, a.out_channels}, image.h, image.w, 1, 1, 0, 0, 1};
}

void pack_weights(const ConvGeometry& geometry, const float* oihw, float* stored) {
  std::fill_n(stored, geometry.weight_count(), 0.0f);
  for_each_weight(geometry, [&](int64_t from, int64_t to) { stored[to] = oihw[from]; });
}

void unpack_weights(const ConvGeometry& geometry, const float* stored, float* oihw) {
  for_each_weight(geometry, [&](int64_t to, int64_t from) { oihw[to] = stored[from]; });
}

}  // namespace tri::ops
