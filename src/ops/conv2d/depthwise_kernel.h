#pragma once
// Room: ops. The register kernels of depthwise convolution: channels in vector lanes, a few columns
// at a time, everything fp32. One form serves forward and backward to the data, for which taps run
// backwards; which taps touch real pixels is settled by the lists (ops/window/window_plan.h).
#include <cstddef>
#include <cstdint>

#include "ops/window/window_plan.h"

namespace tri::ops {

// One row of results. Strides in floats; addresses are at the first channel of column 0.
struct DepthwiseRow {
  const float* const* src;  // one address per vertical tap
  int64_t src_count;
  int64_t src_pixel;     // to the next column
  const float* weights;  // of the first vertical tap and horizontal tap 0
  int64_t weight_row;    // to the next vertical tap
  int64_t weight_tap;    // from horizontal tap k to k + 1
  int64_t tap_step;      // horizontal taps from one source column to the next: 1 or -stride
  const ColumnRun* runs;
  size_t run_count;
  int64_t src_step, dst_step;  // columns, see WindowAxis
  const float* bias;           // (channels), or null
  float* dst;
  int64_t dst_pixel;
  int64_t channels;
  const float* factors = nullptr;  // (columns, channels) one after the other, or null
};

// dst[column][c] = bias[c] + sum over vertical, then horizontal taps: one chain per result; times
// factors[column][c].
void depthwise_row(const DepthwiseRow& row) noexcept;

// One row of output gradients meets the source rows that its taps touch; forward lists.
struct DepthwiseGradRow {
  const float* const* src;
  int64_t src_count;
  int64_t src_pixel;
  const float* grad;
  int64_t grad_pixel;
  float* sums;       // of the first vertical tap and horizontal tap 0
  int64_t sums_row;  // to the next vertical tap
  int64_t sums_tap;  // to the next horizontal tap
  const ColumnRun* runs;
  size_t run_count;
  int64_t src_step;
  int64_t channels;
};

// sums[tap][c] += sum over columns, in ascending order, of source * gradient.
void depthwise_grad_row(const DepthwiseGradRow& row) noexcept;

}  // namespace tri::ops
