#pragma once
// Room: ops. The gradient of a bias: the sum of the output's gradient over samples and pixels.
#include "base/thread_pool.h"
#include "ops/rows/rows.h"

namespace tri::ops {

size_t bias_grad_worker_bytes();

// sums[c] += sum over pixels, sample after sample: each sample is summed by itself and then added,
// so that micro-batches give the bits of the whole batch.
void bias_grad(int64_t samples, int64_t pixels, int64_t channels, const GradSource& grad,
               float* sums, std::byte* scratch, base::ThreadPool& pool) noexcept;

}  // namespace tri::ops
