#pragma once
// Room: ops. What depthwise convolution and pooling share: every destination pixel is made of the
// few source pixels that a window covers, channel by channel. In: the numbers of the window. Out:
// which source pixels those are, and tiles that keep the source rows in use within L2. The cut
// depends on the shape and the number of samples, never on the threads. Knows no data and no
// arithmetic.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/op.h"
#include "tensor/shape.h"

namespace tri::ops {

using tensor::Shape;

struct Window {
  Shape in, out;  // equal channels
  int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, padding_h = 0, padding_w = 0;
};

Window window_of(const Attributes& attributes, const Shape& in, const Shape& out);

// Forward, destinations are outputs and sources inputs; backward to the data the other way round.
enum class Pass : uint8_t { kForward, kBackward };

// The taps of one destination that touch real sources, along one axis: tap k meets source src, tap
// k + tap_step meets src + 1, and so on.
struct AxisTaps {
  int64_t src, k, count;
};

struct WindowAxis {
  WindowAxis(Pass pass, int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding);

  Pass pass;
  int64_t src, dst, kernel, stride, padding;
  int64_t tap_step;  // 1 forward, -stride backward
  // Destinations dst_step apart meet the same taps, at sources src_step apart.
  int64_t src_step, dst_step;

  AxisTaps taps(int64_t index) const;
  int64_t most_taps() const;  // of any destination
};

// Destination columns dst, dst + dst_step, ... that meet the same taps.
struct ColumnRun {
  int32_t dst;    // the first one
  int32_t count;  // how many
  int32_t src;    // source column of the first one's first tap
  int32_t k;      // that tap
  int32_t taps;   // how many, 0 where padding is all there is
};

// By first column, phase by phase; forward, there is one phase and columns ascend.
std::vector<ColumnRun> column_runs(const WindowAxis& axis);

struct WindowPlan {
  // `row_floats`: what a kernel keeps in cache beside the rows, per channel (weights).
  WindowPlan(const Window& window, Pass pass, int64_t samples, int64_t row_floats = 0);

  Window window;
  Pass pass;
  int64_t samples;
  Shape src, dst;
  WindowAxis y, x;
  std::vector<ColumnRun> runs;
  // A tile: so many samples, rows of dst and channels.
  int64_t tile_samples, tile_rows, tile_channels;
  int64_t ring_rows;  // rows of src held at a time; src.h: the whole map

  size_t tiles() const;
  size_t worker_bytes() const;  // ring of source rows, one row of results, row addresses
};

}  // namespace tri::ops
