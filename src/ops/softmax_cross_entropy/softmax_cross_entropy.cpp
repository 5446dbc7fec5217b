#include "ops/softmax_cross_entropy/softmax_cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "ops/rows/counts.h"

namespace tri::ops {
namespace {

constexpr int64_t kRanks = 5;  // top 1 and top 5 are counted

struct SampleResult {
  double loss;
  int64_t rank;  // logits above the label's own
};
static_assert(sizeof(SampleResult) == 16);

SampleResult evaluate(const LossPlan& plan, const float* logits, int32_t label,
                      double* log_normaliser) {
  const double top = double{*std::max_element(logits, logits + plan.classes)};
  double sum = 0.0, mean = 0.0;
  SampleResult result{0.0, 0};
  for (int64_t k = 0; k < plan.classes; ++k) {
    sum += std::exp(double{logits[k]} - top);
    mean += double{logits[k]};
    result.rank += logits[k] > logits[label] || (logits[k] == logits[label] && k < label) ? 1 : 0;
  }
  *log_normaliser = top + std::log(sum);
  mean /= static_cast<double>(plan.classes);
  const double smoothing = double{plan.smoothing};
  result.loss = *log_normaliser - (1.0 - smoothing) * double{logits[label]} - smoothing * mean;
  if (!std::isfinite(result.loss)) result.rank = plan.classes + kRanks;  // nothing is above NaN
  return result;
}

}  // namespace

LossSum softmax_cross_entropy(const LossPlan& plan, const Source& logits, const int32_t* labels,
                              float grad_scale, const Sink& grad, std::byte* scratch,
                              base::ThreadPool& pool) noexcept {
  auto* results = reinterpret_cast<SampleResult*>(scratch);
  std::byte* workers = scratch + plan.shared_bytes();
  CountSum lost;
  pool.run(static_cast<size_t>(plan.samples), [&](size_t sample, size_t worker) {
    auto* row = reinterpret_cast<float*>(workers + worker * plan.worker_bytes());
    const RowRange range{static_cast<int64_t>(sample), 0, 1, 0, plan.classes};
    const int32_t label = labels[sample];
    TRI_CHECK(label >= 0 && label < plan.classes, "label {} of {} classes", label, plan.classes);
    load_rows(logits, range, row, plan.classes);
    double log_normaliser = 0.0;
    results[sample] = evaluate(plan, row, label, &log_normaliser);
    if (grad.data == nullptr) return;
    const double share = double{plan.smoothing} / static_cast<double>(plan.classes);
    for (int64_t k = 0; k < plan.classes; ++k) {
      const double target = share + (k == label ? 1.0 - double{plan.smoothing} : 0.0);
      row[k] = static_cast<float>(double{grad_scale} *
                                  (std::exp(double{row[k]} - log_normaliser) - target));
    }
    lost.add(store_rows(grad, range, row, plan.classes));
  });
  LossSum sum;
  sum.lost = lost.total();
  for (int64_t i = 0; i < plan.samples; ++i) {
    sum.loss += results[i].loss;
    sum.top1 += results[i].rank < 1 ? 1 : 0;
    sum.top5 += results[i].rank < kRanks ? 1 : 0;
  }
  return sum;
}

}  // namespace tri::ops
