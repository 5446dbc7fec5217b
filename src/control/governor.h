#pragma once
// Room: control. The governor: signals in, one decision out, conflicts settled by rule. All that it
// remembers is a GovernorState, so a run can be stopped, resumed and replayed.
//
// Note [Order of rules]
// 1. Safety: what overflowed or was not finite is promoted for good; what curves too much is
//    promoted until it is calm; the loss scale falls.
// 2. Memory: nothing is planned above the ceiling. What does not fit climbs down the rungs (Note
//    [Rungs] in rungs.cpp), all in the same decision. A promotion of rule 1 that no rung
//    gives room waits for it.
// 3. Speed and quality: what a rung took comes back when rho_high of the ceiling allows; layers
//    follow their variance as far; then the batch moves, at most once in a window.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "control/batch/elastic.h"
#include "control/curvature/step_size.h"
#include "control/decision.h"
#include "control/precision/adaptive.h"
#include "control/precision/assign.h"
#include "control/precision/loss_scale.h"
#include "control/signals.h"

namespace tri::control {

enum class PrecisionPolicy : uint8_t {
  kAdaptive,
  kFp32,
  kBf16,
  kFp16,
  kFp16x169,
  kFp8,
  kHfp8,
  kAssign
};
enum class BatchPolicy : uint8_t { kFixed, kElastic, kMicro };

struct GovernorSettings {
  PrecisionPolicy precision = PrecisionPolicy::kFp32;
  AdaptiveSettings adaptive;
  AssignSettings assign;
  std::optional<double> promote_share = 0.01;  // kAssign: of overflowing elements; none: off
  LossScaleSettings loss_scale;
  StepSizeSettings step_size;
  BatchPolicy batching = BatchPolicy::kFixed;
  ElasticSettings elastic;  // `unit` and the rhos count in every mode
  int64_t first_batch = 1;
  int64_t ghost = 0;       // of the first steps; 0: none
  bool recompute = false;  // whether blocks may be made again
};

// Whether a policy keeps its gradients inside a narrow format by a loss scale.
bool scales_loss(PrecisionPolicy policy);

struct GovernorState : StepShape {
  int64_t blocks = 0;          // made again in the backward pass
  uint64_t ceiling_bytes = 0;  // under which it was last planned
  int64_t rest = 0;            // windows until the batch may grow
  uint64_t lost_step = 0;      // the last that failed
  int64_t failures = 0;        // in a row up to that one
  int64_t helpless = 0;        // of those, with nothing left to try
  uint64_t changes = 0;        // made so far
  LossScale loss;
  std::vector<AdaptiveLayer> layers;   // kAdaptive, kFp32, kBf16
  Assignment assignment;               // by operation; kFp16x169, kFp8, kHfp8, kAssign
  std::vector<double> lambda;          // smoothed curvature by layer; empty: no estimate yet
  std::optional<GradientNoise> noise;  // smoothed; none: no estimate yet
  std::optional<double> noise_scale;   // behind the last estimate; windows between keep to it
  Signals window;                      // since the last decide()
  bool operator==(const GovernorState&) const = default;
};

class Governor {
 public:
  // `ops` only for the policies of paper (c).
  Governor(const GovernorSettings& settings, std::vector<LayerFacts> layers,
           std::vector<AssignOp> ops);

  GovernorState start() const;
  Decision current(const GovernorState& state) const;  // no changes

  // Behind every step: adds it to the window, and acts where waiting would be unsafe.
  Decision watch(GovernorState& state, const Signals& step, const PriceOf& price) const;
  // What watch() does beyond adding to the window; for replay.
  Decision react(GovernorState& state, const Signals& step, const PriceOf& price) const;

  // Takes an estimate of curvature, largest eigenvalue by layer: step sizes follow at once,
  // precision at the end of the window.
  void estimate(GovernorState& state, std::vector<double> lambda,
                std::optional<GradientNoise> noise) const;

  // At the end of a window: decides, and begins the next one.
  Decision decide(GovernorState& state, const PriceOf& price) const;
  Decision decide(GovernorState& state, const Signals& window, const PriceOf& price) const;

  // What a layer's rate is multiplied with.
  double step_factor(const GovernorState& state, size_t layer, double rate) const;

  const GovernorSettings& settings() const { return settings_; }
  std::span<const LayerFacts> layers() const { return layers_; }
  std::span<const AssignOp> ops() const { return ops_; }

 private:
  GovernorSettings settings_;
  std::vector<LayerFacts> layers_;
  std::vector<AssignOp> ops_;
};

}  // namespace tri::control
