#pragma once
// Room: train. The governor at the wheel of an engine. In: the report of every step. Out: the next
// steps' plan, rates, scales and loss scale, and `control` events that say why. All that it knows
// from step to step is in RunState, so a resumed run is steered alike.
#include <string>
#include <vector>

#include "control/governor.h"
#include "exec/engine.h"
#include "metrics/event.h"
#include "train/run_state.h"
#include "train/step_pricing.h"
#include "tri/config.h"
#include "tri/result.h"

namespace tri::train {

class Steering {
 public:
  // All outlive this; `engine` is planned as `state` says.
  Steering(const Config& config, const control::Governor& governor, const StepPricing& pricing,
           exec::Engine& engine, RunState& state);

  // Before a step: the rate of every parameter.
  void set_rates(double rate);
  float loss_scale() const { return static_cast<float>(state_.control.loss.scale); }
  // Steps that were skipped as a whole, see exec::StepOrder; without a loss scale layers are lost.
  uint64_t lost_steps() const {
    return governor_.settings().loss_scale.on ? state_.control.loss.skipped : 0;
  }

  // Behind a step, which `state` counts already; `rate` was its rate. Returns events to be written.
  Result<std::vector<metrics::Fields>> after_step(const exec::StepReport& report, double rate);

  // Before a step: whether curvature is to be measured at the head of its batch.
  bool curvature_due() const;
  // Takes an estimate; returns a `curvature` event.
  metrics::Fields note_curvature(const exec::CurvatureReport& report, double rate);

  // Between steps: lives below another ceiling from now on, as far as its modes allow. Returns the
  // event to be written.
  Result<metrics::Fields> move_ceiling(uint64_t bytes, const std::string& reason);

  bool diverged() const { return diverged_; }
  // What was not finite in the last lost step, with its verb: "the loss was".
  const std::string& lost_values() const { return lost_values_; }

  control::PrecisionShares shares() const;
  std::optional<double> low_ratio() const;  // paper (c)'s; none with other policies

 private:
  bool decides() const;
  void set_scales(const control::Decision& decision);
  Result<metrics::Fields> apply(const control::Decision& decision,
                                const control::GovernorState& before,
                                const control::Signals& signals, bool urgent);

  const Config& config_;
  const control::Governor& governor_;
  const StepPricing& pricing_;
  exec::Engine& engine_;
  RunState& state_;
  std::vector<int> layer_of_;  // by parameter
  bool diverged_ = false;
  std::string lost_values_;
};

}  // namespace tri::train
