#pragma once
// Room: ops. The loss: mean over samples of -sum_k t_k log softmax(logits)_k with label smoothing
// t = (1 - s) onehot + s / classes, its gradient, and how many samples it ranks right. All in
// double precision per sample; classes are few.
#include <cstdint>

#include "base/thread_pool.h"
#include "ops/rows/rows.h"

namespace tri::ops {

struct LossPlan {
  int64_t samples = 0;
  int64_t classes = 0;
  float smoothing = 0.0f;

  // One row of logits for every worker, and a result for every sample.
  size_t worker_bytes() const { return static_cast<size_t>((classes + 15) / 16) * 64; }
  size_t shared_bytes() const { return static_cast<size_t>(samples) * 16; }
};

struct LossSum {
  double loss = 0.0;  // summed over samples, without grad_scale
  int64_t top1 = 0;   // samples whose label has the largest logit (ties: the lower class wins)
  int64_t top5 = 0;
  StoreCounts lost;  // by storing the gradient
};

// `grad`: (samples, 1, 1, classes), or null data for evaluation; it gets grad_scale * d loss_sample
// / d logits, so grad_scale is 1 / batch, times the loss scale. Labels are in [0, classes).
LossSum softmax_cross_entropy(const LossPlan& plan, const Source& logits, const int32_t* labels,
                              float grad_scale, const Sink& grad, std::byte* scratch,
                              base::ThreadPool& pool) noexcept;

}  // namespace tri::ops
