#pragma once
// Room: ops. Depthwise convolution, where every channel has a filter of its own: bound by memory,
// so each source row is loaded once per tile, stays in cache while its windows need it, and each
// result is stored once.
#include <cstddef>

#include "base/thread_pool.h"
#include "ops/conv2d/conv_geometry.h"
#include "ops/conv2d/gather_plan.h"
#include "ops/rows/rows.h"
#include "ops/rows/weights.h"
#include "ops/window/window_plan.h"

namespace tri::ops {

struct DepthwisePlan {
  // REQUIRES: geometry.depthwise().
  DepthwisePlan(const ConvGeometry& geometry, Direction direction, int64_t samples);

  ConvGeometry geometry;
  WindowPlan window;

  size_t shared_bytes() const;  // the weights as fp32
  size_t worker_bytes() const { return window.worker_bytes(); }
};

// The weights as fp32, [tap][channels padded to 32]: where they lie, or widened into `scratch`,
// room for plan.shared_bytes().
const float* wide_weights(const ConvGeometry& geometry, const Weights& weights, std::byte* scratch,
                          base::ThreadPool& pool) noexcept;

// dst = bias + convolution of src. `bias` is (channels) or null; scratch holds
// plan.shared_bytes() + pool.threads() * plan.worker_bytes(). Returns what storing lost, the same
// for any pool. REQUIRES: planned for kForward.
StoreCounts depthwise_forward(const DepthwisePlan& plan, const Source& src, const Weights& weights,
                              const float* bias, const Sink& dst, std::byte* scratch,
                              base::ThreadPool& pool) noexcept;

// dst (+)= transposed convolution of the gradient of the output.
// REQUIRES: planned for kBackwardData.
StoreCounts depthwise_backward_data(const DepthwisePlan& plan, const GradSource& src,
                                    const Weights& weights, const Sink& dst, std::byte* scratch,
                                    base::ThreadPool& pool) noexcept;

}  // namespace tri::ops
