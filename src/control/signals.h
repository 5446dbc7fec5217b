#pragma once
// Room: control. What a policy may know: small, copied, plain numbers about one step or about all
// steps of a window. No tensors, files or clocks, so that recorded signals lead to the same
// decisions anywhere.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "control/decision.h"

namespace tri::control {

// A weight layer, as it stays for the whole run.
struct LayerFacts {
  std::string name;
  int64_t params = 0;      // elements of its weight
  int64_t y_elements = 0;  // of what it stores per sample
};

// Moments of a gradient's elements.
struct Moments {
  double sum = 0;
  double sum_squares = 0;
  uint64_t count = 0;

  double variance() const {
    if (count == 0) return 0;
    const double mean = sum / static_cast<double>(count);
    const double variance = sum_squares / static_cast<double>(count) - mean * mean;
    return variance > 0 ? variance : 0;
  }
};

struct LayerSignals {
  // Variance of the gradient's elements times the batch. The noise in a mean of B samples falls as
  // 1 / B, so this stays when the batch alone changes. Mean over the steps.
  double spread = 0;
  // Shares of values that a format could not hold; overflow: the worst step, underflow: mean.
  double p_overflow = 0, y_overflow = 0, gy_overflow = 0;
  double y_underflow = 0, gy_underflow = 0;
  double y_amax = 0, gy_amax = 0;  // largest magnitude, scales taken off; 0: not known
  uint64_t nonfinite = 0;          // elements of the gradient
  bool operator==(const LayerSignals&) const = default;
};

struct Signals {
  uint64_t step = 0, samples = 0;  // behind the last step
  uint64_t steps = 0;              // that went well and are described here
  int64_t batch = 0;               // of the last step
  double rate = 0;                 // the scheduled, batch-scaled learning rate
  uint64_t used_bytes = 0;  // accounted peak of the engine, and what the process holds beside it
  uint64_t ceiling_bytes = 0;
  bool failed = false;     // loss not finite, or an update skipped: nothing was learned
  int64_t first_bad = -1;  // layer of the first non-finite value; -1: none, or not known
  std::optional<double> noise_scale = {};
  std::vector<LayerSignals> layers = {};
  std::vector<double> lambda = {};  // largest curvature by layer; empty: no estimate since the last
  bool operator==(const Signals&) const = default;
};

// Adds a step to its window. An empty Signals is an empty window.
void join(Signals& window, const Signals& step);

// What a step would cost.
struct Price {
  uint64_t bytes = UINT64_MAX;  // of the whole process; UINT64_MAX: there is no such plan
  int64_t blocks = 0;           // made again in the backward pass
  double again = 0;             // their multiply-adds, as a share of those of the step
};

// A shape that may recompute does as little of it as brings the process to `limit_bytes`, or, where
// that cannot be, all that helps.
using PriceOf = std::function<Price(const PrecisionTable&, const StepShape&, uint64_t limit_bytes)>;

// Every field under its name, for whoever writes signals to a file and reads them back.
template <class Layer, class Visit>
void visit_layer_signals(Layer& layer, const Visit& visit) {
  visit("spread", layer.spread);
  visit("p_overflow", layer.p_overflow);
  visit("y_overflow", layer.y_overflow);
  visit("gy_overflow", layer.gy_overflow);
  visit("y_underflow", layer.y_underflow);
  visit("gy_underflow", layer.gy_underflow);
  visit("y_amax", layer.y_amax);
  visit("gy_amax", layer.gy_amax);
  visit("nonfinite", layer.nonfinite);
}

// All but `layers`.
template <class All, class Visit>
void visit_signals(All& signals, const Visit& visit) {
  visit("step", signals.step);
  visit("samples", signals.samples);
  visit("steps", signals.steps);
  visit("batch", signals.batch);
  visit("rate", signals.rate);
  visit("used_bytes", signals.used_bytes);
  visit("ceiling_bytes", signals.ceiling_bytes);
  visit("failed", signals.failed);
  visit("first_bad", signals.first_bad);
  visit("noise_scale", signals.noise_scale);
  visit("lambda", signals.lambda);
}

}  // namespace tri::control
