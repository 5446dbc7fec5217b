#pragma once
// Room: ops. Runs an OuterPlan: the gradient of dense weights, handed over part by part.
#include <cstddef>

#include "base/thread_pool.h"
#include "ops/conv2d/outer_plan.h"
#include "ops/rows/rows.h"

namespace tri::ops {

// Takes finished parts of a weight's gradient: elements [begin, begin + count) of its storage
// order, begin a multiple of 32. Parts are numbered from 0, the same whatever the threads do.
// Called from many threads at once with disjoint parts; must not throw.
class GradConsumer {
 public:
  // Before the first part, if OuterPlan::bounded_gradient() and the sums begin at zero: no element
  // of dW, of the bias's gradient or of their partial sums is larger in magnitude than `most`, but
  // for rounding. Not finite: nothing is known.
  virtual void expect([[maybe_unused]] float most) noexcept {}
  virtual void consume(size_t part, int64_t begin, int64_t count, const float* grad) noexcept = 0;

 protected:
  ~GradConsumer() = default;
};

// Sees all packed operands before they are multiplied, see OuterPlan::packed_gradient(): units
// [first, first + count) of the plan with all threads, or with units apart one of them in each.
class ChunkReader {
 public:
  virtual void read(const float* chunk, size_t first, size_t count) noexcept = 0;
  virtual void read_unit(const float* packed, size_t unit, size_t worker) noexcept = 0;

 protected:
  ~ChunkReader() = default;
};

// Sums x (outer) d over all positions and hands every element of dW to `consumer` once.
// `initial`: the sums to continue from (storage order), or null for zeros.
// `partial`: room for the whole gradient; read and written iff plan.whole_gradient(), and may then
// be the same memory as `initial`. scratch: plan.shared_bytes() + threads * plan.worker_bytes().
// `reader`: may be null.
void conv_backward_weights(const OuterPlan& plan, const Source& x, const GradSource& d,
                           const float* initial, float* partial, GradConsumer& consumer,
                           std::byte* scratch, base::ThreadPool& pool,
                           ChunkReader* reader = nullptr) noexcept;

}  // namespace tri::ops
