#include "train/step_pricing.h"

#include "exec/recompute.h"
#include "train/governing.h"

namespace tri::train {
namespace {

constexpr size_t kRemembered = 16;

}  // namespace

const StepPricing::Answer& StepPricing::answer(const control::PrecisionTable& table,
                                               const control::StepShape& shape,
                                               uint64_t limit) const {
  for (const Answer& given : answers_) {
    if (given.shape == shape && given.limit == limit && given.table == table) return given;
  }
  if (answers_.size() == kRemembered) answers_.pop_front();
  exec::StepSpec spec = find_spec(table, shape, limit);
  const control::Price cost = price(spec);
  return answers_.emplace_back(Answer{table, shape, limit, std::move(spec), cost});
}

exec::StepSpec StepPricing::spec(const control::PrecisionTable& table,
                                 const control::StepShape& shape, uint64_t limit) const {
  return answer(table, shape, limit).spec;
}

exec::StepSpec StepPricing::find_spec(const control::PrecisionTable& table,
                                      const control::StepShape& shape, uint64_t limit) const {
  exec::StepSpec spec = engine_->spec();
  spec.samples = shape.batch / shape.micros;
  spec.micros = shape.micros;
  spec.ghost = shape.ghost;
  spec.formats = formats_of(table);
  spec.recompute.clear();
  if (config_->recompute == Recompute::kAll) return exec::with_all_recomputed(*engine_, spec);
  if (!shape.recompute) return spec;
  const uint64_t besides = besides_.fixed_bytes + besides_.waiting(spec.samples);
  return exec::with_recompute_within(*engine_, spec, limit > besides ? limit - besides : 0);
}

control::Price StepPricing::price(const exec::StepSpec& spec) const {
  const auto priced = [&](const exec::Forecast& forecast) {
    const uint64_t besides = besides_.fixed_bytes + besides_.waiting(spec.samples);
    return control::Price{forecast.engine_peak_bytes + besides,
                          static_cast<int64_t>(spec.recompute.size()), forecast.again};
  };
  if (spec == engine_->spec()) return priced(engine_->forecast());
  const Result<exec::Forecast> forecast = engine_->price(spec);
  return forecast ? priced(*forecast) : control::Price{};
}

control::PriceOf StepPricing::prices() const {
  return [this](const control::PrecisionTable& table, const control::StepShape& shape,
                uint64_t limit) {
    if (shape.batch < 1 || shape.micros < 1 || shape.batch % shape.micros != 0) {
      return control::Price{};
    }
    return answer(table, shape, limit).price;
  };
}

UnderCeiling decide_under(const control::Governor& governor, control::GovernorState& state,
                          const StepPricing& pricing, uint64_t used_bytes, uint64_t ceiling,
                          control::Signals at) {
  at.batch = state.batch;
  at.used_bytes = used_bytes;
  at.ceiling_bytes = ceiling;
  at.layers.resize(governor.layers().size());
  control::Decision decision = governor.react(state, at, pricing.prices());
  return {std::move(decision), std::move(at)};
}

}  // namespace tri::train
