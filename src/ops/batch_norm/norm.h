#pragma once
// Room: ops. Batch normalisation over ghost batches: samples [k * ghost, (k + 1) * ghost) have
// statistics of their own, so that normalisation does not change when the batch does. The
// normalised tensor is never stored: forward yields scale and shift for the load transform,
// backward yields a, b, c (Note [Load transform] in ops/rows/rows.h).
#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"
#include "ops/rows/rows.h"

namespace tri::ops {

struct NormPlan {
  NormPlan(int64_t samples, int64_t pixels, int64_t channels, int64_t ghost);

  int64_t samples, pixels, channels;
  int64_t ghost;  // samples of a ghost batch; the last one may be smaller
  int64_t ghosts;
  int64_t tile_rows;    // pixels that one tile sums
  int64_t ghost_tiles;  // tiles of a full ghost batch

  int64_t ghost_rows(int64_t index) const;  // pixels of ghost batch `index`
  size_t tiles() const { return static_cast<size_t>(ghosts * ghost_tiles); }
  size_t shared_bytes() const;  // partial sums
  size_t worker_bytes() const;  // rows of a tile as fp32
};

// What forward leaves for the loads and for backward, (ghosts, channels) each.
struct NormBatch {
  float* mean;
  float* inverse;  // 1 / sqrt(variance + eps)
  float* scale;
  float* shift;
};

struct NormParams {
  const float* gamma;
  const float* beta;
  float eps;
};

// Running statistics as PyTorch keeps them: r += momentum * (batch - r), unbiased variance, one
// update per ghost batch in order. Null pointers: none are kept (recomputation, curvature).
struct NormRunning {
  float* mean = nullptr;
  float* variance = nullptr;
  float momentum = 0.1f;
};

// Statistics of the stored numbers, as rounded. Each tile sums twice, first for its mean, and tiles
// are joined by Chan's formula in double precision: no E[x^2] - E[x]^2.
void norm_forward(const NormPlan& plan, const Stored& y, const NormParams& params,
                  const NormBatch& batch, const NormRunning& running, std::byte* scratch,
                  base::ThreadPool& pool) noexcept;

// Evaluation and frozen mode: scale and shift (channels) from the running statistics.
void norm_frozen(int64_t channels, const NormParams& params, const float* running_mean,
                 const float* running_variance, float* scale, float* shift) noexcept;

struct NormGrads {
  float* a;  // (ghosts, channels)
  float* b;
  float* c;
  float* gamma;  // (channels); both are added to
  float* beta;
};

// Sums dz and dz * (y - mean) per ghost batch, and from them the coefficients of d stored and the
// gradients of gamma and beta. `grad` carries the norm's scale and shift in grad.value.norm.
// With `rewrite`, dz replaces GY where it lies, rounded once more: the passes that follow need not
// differentiate an expensive activation again, each for itself.
StoreCounts norm_backward(const NormPlan& plan, const GradSource& grad, const NormBatch& batch,
                          const NormParams& params, const NormGrads& grads, bool rewrite,
                          std::byte* scratch, base::ThreadPool& pool) noexcept;

}  // namespace tri::ops
