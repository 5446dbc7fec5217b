#pragma once
// Room: ops. Average pooling with PyTorch's divisors: padding counts as zeros if asked, what
// overhangs the padding in ceil mode never does. A divisor is a number of rows times a number of
// columns, so the shares 1 / rows and 1 / columns are kept per axis.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "ops/rows/rows.h"
#include "ops/window/window_plan.h"

namespace tri::ops {

struct AvgPoolPlan {
  AvgPoolPlan(const Window& window, bool count_include_pad, Pass pass, int64_t samples);

  WindowPlan window;
  std::vector<float> row_share, column_share;  // of the outputs

  size_t worker_bytes() const { return window.worker_bytes(); }
};

// scratch: pool.threads() * plan.worker_bytes(). Both return what storing lost, the same for any
// pool. REQUIRES: planned for the pass.
StoreCounts avg_pool_forward(const AvgPoolPlan& plan, const Source& src, const Sink& dst,
                             std::byte* scratch, base::ThreadPool& pool) noexcept;
StoreCounts avg_pool_backward(const AvgPoolPlan& plan, const GradSource& src, const Sink& dst,
                              std::byte* scratch, base::ThreadPool& pool) noexcept;

}  // namespace tri::ops
