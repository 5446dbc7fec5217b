#pragma once
// Room: train. The learning rate as a pure function of samples seen and batch: linear warm-up, then
// a cosine to zero. Knows no step count, so a batch that changes does not bend the curve.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "tri/config.h"

namespace tri::train {

// The rate's factor for a batch other than the first.
inline double batch_factor(LrRule rule, int64_t batch, int64_t first_batch) {
  const double ratio = static_cast<double>(batch) / static_cast<double>(first_batch);
  switch (rule) {
    case LrRule::kLinear:
      return ratio;
    case LrRule::kSqrt:
      return std::sqrt(ratio);
    case LrRule::kNone:
      return 1;
  }
  return 1;
}

struct Schedule {
  double lr = 0;              // at the top, for first_batch
  double warmup_samples = 0;  // <= total_samples
  double total_samples = 0;   // > 0
  LrRule rule = LrRule::kLinear;
  int64_t first_batch = 1;

  // Between 0 and 1, after `samples`; 0 once all are seen.
  double shape(double samples) const {
    if (samples < warmup_samples) return samples / warmup_samples;
    const double length = total_samples - warmup_samples;
    if (samples >= total_samples || length <= 0) return 0;
    return (1 + std::cos(std::numbers::pi * (samples - warmup_samples) / length)) / 2;
  }

  // For a step that takes `batch` samples after `samples_seen`. The curve is read at the middle of
  // the step: the first step moves, the last one does too, and by the midpoint rule the sum over a
  // run is that of the curve, whatever the batch.
  double rate(uint64_t samples_seen, int64_t batch) const {
    const double middle = static_cast<double>(samples_seen) + static_cast<double>(batch) / 2;
    return lr * shape(middle) * batch_factor(rule, batch, first_batch);
  }
};

// REQUIRES: a resolved configuration; epoch_samples > 0.
inline Schedule make_schedule(const Config& config, uint64_t epoch_samples) {
  const double epoch = static_cast<double>(epoch_samples);
  return {.lr = *config.lr,
          .warmup_samples = *config.warmup * epoch,
          .total_samples = static_cast<double>(config.epochs) * epoch,
          .rule = config.lr_rule,
          .first_batch = config.batch};
}

}  // namespace tri::train
