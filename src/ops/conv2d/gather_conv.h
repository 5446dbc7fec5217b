#pragma once
// Room: ops. Runs a GatherPlan: dense convolution forward, and backward to the data.
#include <cstddef>

#include "base/thread_pool.h"
#include "ops/conv2d/gather_plan.h"
#include "ops/rows/rows.h"
#include "ops/rows/weights.h"

namespace tri::ops {

// dst = bias + convolution of src. `bias` is (out channels, padded to panels) or null; scratch
// holds plan.scratch_bytes(pool.threads()). Returns what storing lost, the same for any pool.
// REQUIRES: plan.direction == kForward.
StoreCounts conv_forward(const GatherPlan& plan, const Source& src, const Weights& weights,
                         const float* bias, const Sink& dst, std::byte* scratch,
                         base::ThreadPool& pool) noexcept;

// dst (+)= transposed convolution of the gradient of the output.
// REQUIRES: plan.direction == kBackwardData.
StoreCounts conv_backward_data(const GatherPlan& plan, const GradSource& src,
                               const Weights& weights, const Sink& dst, std::byte* scratch,
                               base::ThreadPool& pool) noexcept;

}  // namespace tri::ops
