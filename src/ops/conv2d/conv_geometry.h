#pragma once
// Room: ops. The numbers of one convolution and the order of its weights in memory. A linear layer
// is a convolution whose kernel covers its whole input: PyTorch's (O, I) columns of a flattened
// image are then OIHW, so both share one layout, one kernel and one way in and out.
#include <cstddef>
#include <cstdint>

#include "ops/conv2d/panel_kernel.h"
#include "ops/op.h"
#include "tensor/shape.h"

namespace tri::ops {

using tensor::Shape;

struct ConvGeometry {
  Shape in, out;
  int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, padding_h = 0, padding_w = 0;
  int64_t groups = 1;

  int64_t taps() const { return kernel_h * kernel_w; }
  int64_t group_in() const { return in.c / groups; }
  int64_t group_out() const { return out.c / groups; }
  bool depthwise() const { return groups > 1 && groups == in.c && groups == out.c; }
  // Every output pixel is made of the input pixel at its place alone.
  bool pointwise() const {
    return taps() == 1 && stride_h == 1 && stride_w == 1 && padding_h == 0 && padding_w == 0 &&
           groups == 1;
  }

  // Note [Panels]. Dense weights lie as [group][panel][tap][input channel][16 output channels],
  // zeros where a group's output channels do not fill its last panel. A panel has an even number
  // of rows, so that a group of 32 8-bit optimizer states never straddles two panels.
  // Depthwise weights lie as [tap][channels, padded to 32].
  int64_t panels() const { return (group_out() + kPanel - 1) / kPanel; }
  int64_t panel_rows() const { return (taps() * group_in() + 1) / 2 * 2; }
  int64_t panel_floats() const { return panel_rows() * kPanel; }
  int64_t padded_channels() const { return (in.c + 31) / 32 * 32; }
  int64_t weight_count() const {
    return depthwise() ? taps() * padded_channels() : groups * panels() * panel_floats();
  }

  // Multiply-adds with a real input pixel in one forward pass of one sample.
  int64_t useful_macs() const;
};

ConvGeometry conv_geometry(const Attributes& attributes, const Shape& in, const Shape& out);
ConvGeometry linear_geometry(const Attributes& attributes, const Shape& in);

// A run of weights that lies together in PyTorch's order (O, I / groups, KH, KW) and in ours: the
// output channels of one panel, or all of a depthwise convolution. Whoever moves weights piece by
// piece needs no copy of the whole.
struct WeightPiece {
  int64_t oihw, count;     // first element and elements in PyTorch's order
  int64_t stored, padded;  // in ours, with padding
};
size_t weight_pieces(const ConvGeometry& geometry);
WeightPiece weight_piece(const ConvGeometry& geometry, size_t index);
// `oihw` and `stored` hold the piece alone. The padding of `stored` becomes zero.
void pack_piece(const ConvGeometry& geometry, size_t index, const float* oihw, float* stored);
void unpack_piece(const ConvGeometry& geometry, size_t index, const float* stored, float* oihw);

// All pieces.
void pack_weights(const ConvGeometry& geometry, const float* oihw, float* stored);
void unpack_weights(const ConvGeometry& geometry, const float* stored, float* oihw);

}  // namespace tri::ops
