#pragma once
// Room: ops. Depthwise convolution backward to the weights, and, as both read the same gradient
// rows, to the data in the same pass.
// Note [Order of depthwise dW]. The samples are cut, at ghost-batch boundaries, into units: a few
// samples, or a strip of rows of one; the cut of a ghost batch does not depend on the batch around
// it. Every unit is summed from zero and the sums are joined in stream order, so the result does
// not depend on the threads or on whether the batch came whole or in micro-batches cut at ghost
// boundaries. Units are what the threads share: there may be as few as 16 channels.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "ops/conv2d/outer_conv.h"
#include "ops/window/window_plan.h"

namespace tri::ops {

struct DepthwiseGradPlan {
  // `ghost`: samples of a ghost batch, 0 for the whole batch. `slopes`: room for those of x, which
  // dX may be multiplied by (RowWatcher::passes_by_slope). REQUIRES: geometry.depthwise().
  DepthwiseGradPlan(const ConvGeometry& geometry, int64_t samples, int64_t ghost,
                    bool slopes = false);

  struct Unit {
    int64_t sample, samples;
    int64_t row, rows;  // of the output
  };
  ConvGeometry geometry;
  WindowAxis y, x;            // forward
  WindowAxis back_y, back_x;  // backward to the data
  std::vector<ColumnRun> runs, back_runs;
  std::vector<Unit> units;
  int64_t tile_channels;
  size_t chunk_units;          // summed before they are joined
  int64_t in_rows, grad_rows;  // held at a time by a worker
  bool slopes;                 // held beside the rows of x

  // Output row r lies at input row r * stride, so that a strip of one is a strip of the other.
  bool joins_data() const { return 2 * geometry.padding_h < geometry.kernel_h; }
  size_t parts() const { return static_cast<size_t>(geometry.taps()); }  // in which dW is delivered
  size_t shared_bytes() const;  // dW and the sums of a chunk
  size_t worker_bytes() const;  // rows of the input, its slopes and the gradient, a row of dX
};

// What it takes to write dX too.
struct DepthwiseData {
  const float* weights;  // see wide_weights() in depthwise.h
  Sink dst;              // the bits are those of depthwise_backward_data()
};

// Sums x * d over all positions and hands every element of dW, [tap][channels padded to 32], to
// `consumer` once; padding is zero. `initial`: the sums to continue from (storage order), or null.
// scratch: plan.shared_bytes() + threads * plan.worker_bytes(). `data`: may be null. Returns what
// storing dX lost. REQUIRES: data == nullptr or plan.joins_data().
StoreCounts depthwise_backward_weights(const DepthwiseGradPlan& plan, const Source& x,
                                       const GradSource& d, const float* initial,
                                       GradConsumer& consumer, const DepthwiseData* data,
                                       std::byte* scratch, base::ThreadPool& pool) noexcept;

}  // namespace tri::ops
