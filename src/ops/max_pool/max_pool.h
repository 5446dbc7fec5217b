#pragma once
// Room: ops. Max pooling. Forward keeps one byte per output: the tap of its window that won, the
// first of equals; NaN wins over numbers, padding never wins. Backward lets every input pixel sum
// the windows that chose it, in row order: no two threads write one pixel.
#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"
#include "ops/rows/rows.h"
#include "ops/window/window_plan.h"

namespace tri::ops {

struct MaxPoolPlan {
  // REQUIRES: every window covers a real pixel and has at most 255 taps.
  MaxPoolPlan(const Window& window, Pass pass, int64_t samples);

  WindowPlan window;

  size_t argmax_bytes() const;  // (samples, out.h, out.w, channels)
  size_t worker_bytes() const { return window.worker_bytes(); }
};

// scratch: pool.threads() * plan.worker_bytes(). `argmax` may be null where no backward follows.
// Both return what storing lost, the same for any pool. REQUIRES: planned for the pass.
StoreCounts max_pool_forward(const MaxPoolPlan& plan, const Source& src, const Sink& dst,
                             uint8_t* argmax, std::byte* scratch, base::ThreadPool& pool) noexcept;
// Takes the taps that a forward pass before this one chose.
StoreCounts max_pool_again(const MaxPoolPlan& plan, const Source& src, const Sink& dst,
                           const uint8_t* argmax, base::ThreadPool& pool) noexcept;
StoreCounts max_pool_backward(const MaxPoolPlan& plan, const GradSource& src, const uint8_t* argmax,
                              const Sink& dst, std::byte* scratch, base::ThreadPool& pool) noexcept;

}  // namespace tri::ops
