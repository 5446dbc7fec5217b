#include "train/step_pricing.h"

#include "exec/recompute.h"
#include "train/governing.h"

namespace tri::train {

// Recomputation changes no bit but costs time, so a step that may shrink does so first, down to
// half: see docs/decisions/0005-rungs.md.
bool StepPricing::may_recompute(int64_t samples) const {
  if (config_->recompute != Recompute::kAuto) return false;
  const bool least = config_->batch_mode == BatchMode::kElastic && samples <= *config_->batch_min;
  return config_->batch_mode == BatchMode::kFixed || least || 2 * samples <= config_->batch;
}

exec::StepSpec StepPricing::spec(const control::PrecisionTable& table, int64_t batch,
                                 int64_t micros, uint64_t ceiling) const {
  exec::StepSpec spec = engine_->spec();
  spec.samples = batch / micros;
  spec.micros = micros;
  spec.formats = formats_of(table);
  spec.recompute.clear();
  if (config_->recompute == Recompute::kAll) return exec::with_all_recomputed(*engine_, spec);
  if (!may_recompute(spec.samples) || bytes(spec) <= ceiling) return spec;
  const uint64_t besides = besides_.fixed_bytes + besides_.waiting(spec.samples);
  if (besides >= ceiling) return spec;
  return exec::with_recompute_within(*engine_, spec, ceiling - besides).value_or(spec);
}

uint64_t StepPricing::bytes(const exec::StepSpec& spec) const {
  const uint64_t besides = besides_.fixed_bytes + besides_.waiting(spec.samples);
  if (spec == engine_->spec()) return engine_->forecast().engine_peak_bytes + besides;
  const Result<exec::Forecast> forecast = engine_->price(spec);
  return forecast ? forecast->engine_peak_bytes + besides : UINT64_MAX;
}

control::PlanBytes StepPricing::under(uint64_t ceiling) const {
  return [this, ceiling](const control::PrecisionTable& table, int64_t batch, int64_t micros) {
    if (batch < 1 || micros < 1 || batch % micros != 0) return UINT64_MAX;
    return bytes(spec(table, batch, micros, ceiling));
  };
}

UnderCeiling decide_under(const control::Governor& governor, control::GovernorState& state,
                          const StepPricing& pricing, uint64_t used_bytes, uint64_t ceiling,
                          control::Signals at) {
  at.batch = state.batch;
  at.used_bytes = used_bytes;
  at.ceiling_bytes = ceiling;
  at.layers.resize(governor.layers().size());
  control::Decision decision = governor.react(state, at, pricing.under(ceiling));
  return {std::move(decision), std::move(at)};
}

}  // namespace tri::train
