#pragma once
// Room: ops. Batch normalisation over ghost batches: samples [k * ghost, (k + 1) * ghost) have
// statistics of their own, so that normalisation does not change when the batch does. The
// normalised tensor is never stored: forward yields scale and shift for the load transform,
// backward yields a, b, c (Note [Load transform] in ops/rows/rows.h).
//
// Note [Watched rows]. Both directions begin with sums over tiles of rows and end by joining them.
// The sums can be made by the operation that writes the tensor: as soon as the last number of a
// tile is there, whoever wrote it sums the tile, which then comes from cache and not from memory.
// The tiles are the same, hence the bits; only rows that are passed (Rewrite::kWhenPassed) are
// summed as they were stored, rounded.
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"
#include "ops/rows/counts.h"
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
  size_t shared_bytes() const;  // partial sums, and what is still to come of each tile
  size_t worker_bytes() const;  // rows of a tile as fp32
  size_t scratch_bytes(size_t threads) const { return shared_bytes() + threads * worker_bytes(); }
};

// Makes the sums of all tiles, told of rows or asked for all at once. Scratch:
// plan.scratch_bytes(); its sums outlive the object.
class NormSums : public RowWatcher {
 public:
  void finished(const RowRange& range, size_t worker) noexcept final;
  void make_all(base::ThreadPool& pool) noexcept;

 protected:
  NormSums(const NormPlan& plan, std::byte* scratch);
  ~NormSums() = default;
  virtual void tile(size_t index, size_t worker) noexcept = 0;
  float* room(size_t worker) const;

  const NormPlan& plan_;
  std::byte* scratch_;

 private:
  std::atomic<int32_t>* left_;  // numbers of each tile that are not there yet
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

// Forward: moments of the stored numbers, as rounded.
class NormMoments final : public NormSums {
 public:
  NormMoments(const NormPlan& plan, const Stored& y, std::byte* scratch)
      : NormSums(plan, scratch), y_(y) {}

 private:
  void tile(size_t index, size_t worker) noexcept override;
  Stored y_;
};

// Joins the moments by Chan's formula in double precision: no E[x^2] - E[x]^2.
void norm_join(const NormPlan& plan, const NormParams& params, const NormBatch& batch,
               const NormRunning& running, const std::byte* scratch,
               base::ThreadPool& pool) noexcept;

// Both, where nobody watched the tensor being written.
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

// dz replaces GY, so that the passes that follow need not differentiate an expensive activation
// again, each for itself: never, where GY lies as its tile is summed (rounded once more), or on the
// way there, by an operation that passes its rows.
enum class Rewrite : uint8_t { kNever, kWhenSummed, kWhenPassed };

// Backward: sums of dz and dz * (y - mean). `grad` carries the norm's scale and shift in
// grad.value.norm.
class NormGradSums final : public NormSums {
 public:
  NormGradSums(const NormPlan& plan, const GradSource& grad, const float* mean, Rewrite rewrite,
               std::byte* scratch);
  void pass(const RowRange& range, float* rows, int64_t stride) const noexcept override;
  bool passes_by_slope() const noexcept override;
  StoreCounts lost() const { return counts_.total(); }  // by rewriting when summed

 private:
  void tile(size_t index, size_t worker) noexcept override;
  GradSource grad_;
  const float* mean_;
  Rewrite rewrite_;
  Sink back_;
  CountSum counts_;
};

// From the sums per ghost batch: the coefficients of d stored and the gradients of gamma and beta.
void norm_join_grads(const NormPlan& plan, const NormBatch& batch, const NormParams& params,
                     const NormGrads& grads, const std::byte* scratch,
                     base::ThreadPool& pool) noexcept;

// The same where GY lies under a factor f and an addend m, (samples, channels) each, which come
// after it: dz = (GY f + m) s with the activation's derivative s. What can be summed before they
// are known is, over the pixels of each sample: (samples, 4, channels), of GY s, GY s (y - mean),
// s and s (y - mean).
inline constexpr int64_t kFactoredSums = 4;
struct FactoredSums {
  const float* sums;
  const float* factor;
  const float* addend;
};
void norm_join_grads(const NormPlan& plan, const NormBatch& batch, const NormParams& params,
                     const NormGrads& grads, const FactoredSums& sums,
                     base::ThreadPool& pool) noexcept;

// Both, where nobody watched; `rewrite`: when summed. Returns what rewriting lost.
StoreCounts norm_backward(const NormPlan& plan, const GradSource& grad, const NormBatch& batch,
                          const NormParams& params, const NormGrads& grads, bool rewrite,
                          std::byte* scratch, base::ThreadPool& pool) noexcept;

}  // namespace tri::ops
