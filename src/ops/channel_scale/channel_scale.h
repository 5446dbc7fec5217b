#pragma once
// Room: ops. Squeeze-excite's product u = x * f with one factor per sample and channel. Forward it
// is a load transform (Source::channel_factor) and costs nothing; backward it takes a pass of its
// own for d f, and either writes d x or makes the sums of the norm through which x is read, so that
// d x can be taken on load (Note [Gradients under a factor] in exec/step_backward.cpp).
#include "base/thread_pool.h"
#include "ops/rows/row_tiles.h"

namespace tri::ops {

size_t channel_scale_worker_bytes(const RowTiles& tiles);

// From the gradient of u: d f = sum over pixels of du * x, stored to `factor_grad` (samples, 1, 1,
// c), and d x = du * f, stored to `input_grad`, which may be the memory of `grad` itself, or have
// none: then d x is left out. x is the input without the factor; factor is (samples, channels)
// fp32. Returns what storing each lost.
struct ChannelScaleCounts {
  StoreCounts input, factor;
};
ChannelScaleCounts channel_scale_backward(const RowTiles& tiles, const GradSource& grad,
                                          const Source& x, const float* factor,
                                          const Sink& input_grad, const Sink& factor_grad,
                                          std::byte* scratch, base::ThreadPool& pool) noexcept;

// The same d f, and `sums` (FactoredSums::sums in ops/batch_norm/norm.h), in one pass. `mean` is
// the norm's, (ghosts, channels). Scratch: threads * channel_scale_sums_worker_bytes(), of the
// formats of x and of `grad`. REQUIRES: x has a norm and no factors.
size_t channel_scale_sums_worker_bytes(int64_t channels, numeric::Format x, numeric::Format grad);
StoreCounts channel_scale_sums(int64_t samples, const Stored& grad, const Source& x,
                               const float* mean, const Sink& factor_grad, float* sums,
                               std::byte* scratch, base::ThreadPool& pool) noexcept;

}  // namespace tri::ops
