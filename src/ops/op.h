#pragma once
// Room: ops. What an operation is, seen from the graph: its kind, its attributes, and the shape it
// makes of its inputs' shapes. Knows no bytes, no batch, no parameters' values and no kernels.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tensor/shape.h"
#include "tri/result.h"

namespace tri::ops {

enum class OpKind : uint8_t {
#define TRI_OP(kind, name) kind,
#include "ops/op_list.inc"
#undef TRI_OP
};

inline constexpr size_t kOpKinds = 0
#define TRI_OP(kind, name) +1
#include "ops/op_list.inc"
#undef TRI_OP
    ;

enum class Activation : uint8_t { kNone, kRelu, kRelu6, kSilu, kSigmoid };

// Whether its derivative takes an exponential: worth keeping once it was made.
constexpr bool costly_slope(Activation activation) {
  return activation == Activation::kSilu || activation == Activation::kSigmoid;
}

// The folder's name: "conv2d", "batch_norm", ...
std::string_view name(OpKind kind);
std::string_view name(Activation activation);

// What is fixed about an operation besides its inputs. Plain numbers; each is read by the
// operations named beside it and left at its default by all others. Defaults are PyTorch's.
struct Attributes {
  int64_t out_channels = 0;                   // conv2d, linear
  int64_t kernel_h = 1, kernel_w = 1;         // conv2d, max_pool, avg_pool
  int64_t stride_h = 1, stride_w = 1;         // conv2d, max_pool, avg_pool
  int64_t padding_h = 0, padding_w = 0;       // conv2d, max_pool, avg_pool; the same on both sides
  int64_t groups = 1;                         // conv2d, channel_shuffle
  bool bias = false;                          // conv2d, linear
  bool ceil_mode = false;                     // max_pool, avg_pool: the last window may overhang
  bool count_include_pad = true;              // avg_pool: padding counts as zeros in the mean
  Activation activation = Activation::kNone;  // activation
  float eps = 1e-5f;                          // batch_norm
  float momentum = 0.1f;                      // batch_norm: weight of the new batch
  float rate = 0.0f;                          // dropout, stochastic_depth: share that is dropped
  int64_t begin = 0, count = 0;               // split: channels [begin, begin + count)
  float label_smoothing = 0.0f;               // softmax_cross_entropy
  tensor::Shape input_shape;                  // input
  // linear: the image whose flattening its input is. PyTorch flattens channels outermost, we
  // innermost, so a weight (OI) exchanged with PyTorch permutes its columns by this shape.
  tensor::Shape flattened_from;
};

// No extent of a shape or an attribute may exceed it, and no sample may have more elements than
// kMaxElements: with that, offsets within a sample fit the 32 bits that kernels keep them in, and
// no product of the engine's index arithmetic overflows 64 bits. A parameter has the same bound.
inline constexpr int64_t kMaxExtent = int64_t{1} << 24;
inline constexpr int64_t kMaxElements = int64_t{1} << 30;

// The shape of one sample of the output. Refuses, with kInvalid and one sentence that names the
// shapes and what was expected, whatever the operation cannot compute.
Result<tensor::Shape> infer(OpKind kind, const Attributes& attributes,
                            std::span<const tensor::Shape> inputs);

}  // namespace tri::ops
