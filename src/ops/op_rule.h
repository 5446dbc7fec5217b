#pragma once
// Room: ops. The shape rules behind infer(), one per folder of op_list.inc, and the few sentences
// they share. Each rule may take for granted that every input shape passed check_shape().
#include <span>
#include <string>

#include "ops/op.h"

namespace tri::ops {

#define TRI_OP(kind, name)                                        \
  Result<tensor::Shape> name##_rule(const Attributes& attributes, \
                                    std::span<const tensor::Shape> inputs);
#include "ops/op_list.inc"
#undef TRI_OP

Unexpected refuse(std::string message);

// Extents of 1..kMaxExtent and at most kMaxElements elements.
Result<void> check_shape(const tensor::Shape& shape);

// 1..kMaxExtent, or "WHAT is VALUE; it must be ...".
Result<void> check_extent(std::string_view what, int64_t value);

// 0 <= rate < 1.
Result<void> check_rate(float rate);

Result<void> check_arity(std::span<const tensor::Shape> inputs, size_t expected);

// Height and width that sliding the kernel over `input` gives; channels are those of the input.
// Ceil mode follows PyTorch: a window that would start in the far padding is left out.
Result<tensor::Shape> slide_window(const Attributes& attributes, const tensor::Shape& input);

// Kernels, strides and paddings as slide_window takes them, padding at most half the kernel.
Result<tensor::Shape> slide_pool(const Attributes& attributes, const tensor::Shape& input);

}  // namespace tri::ops
