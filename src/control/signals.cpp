#include "control/signals.h"

#include <algorithm>

#include "base/check.h"

namespace tri::control {

void join(Signals& window, const Signals& step) {
  if (window.layers.empty()) window.layers.resize(step.layers.size());
  TRI_CHECK(window.layers.size() == step.layers.size(), "{} and {} layers", window.layers.size(),
            step.layers.size());
  const auto before = static_cast<double>(window.steps);
  const auto mean = [before](double old, double now) {
    return (old * before + now) / (before + 1);
  };
  for (size_t l = 0; l < step.layers.size(); ++l) {
    LayerSignals& all = window.layers[l];
    const LayerSignals& one = step.layers[l];
    all.p_overflow = std::max(all.p_overflow, one.p_overflow);
    all.y_overflow = std::max(all.y_overflow, one.y_overflow);
    all.gy_overflow = std::max(all.gy_overflow, one.gy_overflow);
    all.nonfinite += one.nonfinite;
    if (step.failed) continue;  // the numbers of a lost step describe nothing
    all.spread = mean(all.spread, one.spread);
    all.y_underflow = mean(all.y_underflow, one.y_underflow);
    all.gy_underflow = mean(all.gy_underflow, one.gy_underflow);
    all.y_amax = std::max(all.y_amax, one.y_amax);
    all.gy_amax = std::max(all.gy_amax, one.gy_amax);
  }
  if (!step.failed) ++window.steps;
  window.step = step.step;
  window.samples = step.samples;
  window.batch = step.batch;
  window.rate = step.rate;
  window.used_bytes = step.used_bytes;
  window.ceiling_bytes = step.ceiling_bytes;
  window.failed = window.failed || step.failed;
  if (window.first_bad < 0) window.first_bad = step.first_bad;
  if (step.noise_scale) window.noise_scale = step.noise_scale;
  if (!step.lambda.empty()) window.lambda = step.lambda;
}

}  // namespace tri::control
