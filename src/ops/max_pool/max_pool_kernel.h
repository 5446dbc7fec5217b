#pragma once
// Room: ops. Max pooling of one row, forward and backward, on fp32 rows; strides in floats or bytes
// of the pointer they belong to, addresses at the first channel of column 0.
#include <cstddef>
#include <cstdint>

#include "ops/window/window_plan.h"

namespace tri::ops {

struct MaxPoolRow {
  const float* const* src;  // one address per vertical tap
  int64_t src_count;
  int64_t src_pixel;
  int64_t first_tap;  // vertical tap 0 of `src` times kernel_w
  int64_t kernel_w;
  const ColumnRun* runs;
  size_t run_count;
  int64_t src_step;
  float* dst;
  int64_t dst_pixel;
  uint8_t* argmax;  // or null
  int64_t argmax_pixel;
  int64_t channels;
};

// The largest value of each window and the tap that holds it: the first of equals, the last NaN.
void max_pool_row(const MaxPoolRow& row) noexcept;

struct MaxPoolGradRow {
  const float* const* grad;  // one address per output row whose windows cover this row
  int64_t grad_count;
  int64_t grad_pixel;
  const uint8_t* argmax;  // of the first of these rows
  int64_t argmax_row, argmax_pixel;
  int64_t first_tap;  // this row in the first window: vertical tap times kernel_w
  int64_t tap_row;    // taps from one window row to the next, negative
  int64_t tap_column;
  const ColumnRun* runs;
  size_t run_count;
  int64_t src_step, dst_step;
  float* dst;
  int64_t dst_pixel;
  int64_t channels;
};

// dst[column] = sum of the gradients of the windows that chose it, in their order.
void max_pool_grad_row(const MaxPoolGradRow& row) noexcept;

}  // namespace tri::ops
