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

// Calls visit(oihw index, stored index) for every weight of a piece, both counted from its start.
template <class Visit>
void for_each_weight(const ConvGeometry& g, size_t index, Visit visit) {
  const int64_t in = g.group_in(), taps = g.taps();
  const int64_t outputs = weight_piece(g, index).count / (in * taps);
  for (int64_t o = 0; o < outputs; ++o)
    for (int64_t i = 0; i < in; ++i)
      for (int64_t tap = 0; tap < taps; ++tap)
        visit((o * in + i) * taps + tap,
              g.depthwise() ? tap * g.padded_channels() + o : (tap * in + i) * kPanel + o);
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

size_t weight_pieces(const ConvGeometry& g) {
  return g.depthwise() ? 1 : static_cast<size_t>(g.groups * g.panels());
}

WeightPiece weight_piece(const ConvGeometry& g, size_t index) {
  const int64_t each = g.group_in() * g.taps();  // weights of one output channel
  if (g.depthwise()) return {0, g.out.c * each, 0, g.weight_count()};
  const auto panel = static_cast<int64_t>(index);
  const int64_t within = panel % g.panels() * kPanel;
  const int64_t first = panel / g.panels() * g.group_out() + within;
  return {first * each, std::min(kPanel, g.group_out() - within) * each, panel * g.panel_floats(),
          g.panel_floats()};
}

void pack_piece(const ConvGeometry& g, size_t index, const float* oihw, float* stored) {
  std::fill_n(stored, weight_piece(g, index).padded, 0.0f);
  for_each_weight(g, index, [&](int64_t from, int64_t to) { stored[to] = oihw[from]; });
}

void unpack_piece(const ConvGeometry& g, size_t index, const float* stored, float* oihw) {
  for_each_weight(g, index, [&](int64_t to, int64_t from) { oihw[to] = stored[from]; });
}

void pack_weights(const ConvGeometry& g, const float* oihw, float* stored) {
  for (size_t i = 0; i < weight_pieces(g); ++i)
    pack_piece(g, i, oihw + weight_piece(g, i).oihw, stored + weight_piece(g, i).stored);
}

void unpack_weights(const ConvGeometry& g, const float* stored, float* oihw) {
  for (size_t i = 0; i < weight_pieces(g); ++i)
    unpack_piece(g, i, stored + weight_piece(g, i).stored, oihw + weight_piece(g, i).oihw);
}

}  // namespace tri::ops
