#pragma once
// Room: ops. The mean over all pixels of a sample, per channel. Each row is summed from zero and
// rows are added in order: the error grows with h + w, not with h * w.
#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"
#include "ops/rows/rows.h"
#include "tensor/shape.h"

namespace tri::ops {

struct GlobalPoolPlan {
  GlobalPoolPlan(const tensor::Shape& in, int64_t samples);

  tensor::Shape in;
  int64_t samples;
  int64_t tile_channels;  // a tile: one sample, so many channels
  int64_t ring_rows;      // loaded at a time

  size_t tiles() const;
  size_t worker_bytes() const;
};

// (samples, h, w, c) -> (samples, 1, 1, c). scratch: pool.threads() * plan.worker_bytes(). Both
// return what storing lost, the same for any pool.
StoreCounts global_pool_forward(const GlobalPoolPlan& plan, const Source& src, const Sink& dst,
                                std::byte* scratch, base::ThreadPool& pool) noexcept;
// dst (+)= the gradient of the mean / (h * w), at every pixel.
StoreCounts global_pool_backward(const GlobalPoolPlan& plan, const GradSource& src, const Sink& dst,
                                 std::byte* scratch, base::ThreadPool& pool) noexcept;

// The same gradient once per sample and channel, (samples, c), for GradSource::channel_addend.
void global_pool_addend(const tensor::Shape& in, int64_t samples, const GradSource& src,
                        float* addend, base::ThreadPool& pool) noexcept;

}  // namespace tri::ops
