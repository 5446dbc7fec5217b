#include "train/steering.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/bytes.h"
#include "train/control_codec.h"
#include "train/engine_options.h"
#include "train/governing.h"

namespace tri::train {
namespace {

// A plan for which the system has no memory is not made: shape and formats stay those of `before`.
// What made them necessary is not forgotten, or a step that cannot be saved would be tried forever.
control::GovernorState without_plan(const control::GovernorState& now,
                                    const control::GovernorState& before, int64_t rest) {
  control::GovernorState kept = now;
  static_cast<control::StepShape&>(kept) = before;
  kept.blocks = before.blocks;
  kept.ceiling_bytes = before.ceiling_bytes;
  kept.changes = before.changes;
  kept.rest = rest;
  kept.assignment = before.assignment;
  for (size_t l = 0; l < kept.layers.size(); ++l) {
    kept.layers[l].level = before.layers[l].level;
    kept.layers[l].narrow = before.layers[l].narrow;
    kept.layers[l].scales = before.layers[l].scales;
  }
  return kept;
}

}  // namespace

Steering::Steering(const Config& config, const control::Governor& governor,
                   const StepPricing& pricing, exec::Engine& engine, RunState& state)
    : config_(config), governor_(governor), pricing_(pricing), engine_(engine), state_(state) {
  std::ranges::fill(engine_.hypers(), hyper_of(config_));
  const exec::Parameters& parameters = engine_.parameters();
  for (size_t p = 0; p < parameters.size(); ++p) {
    const auto node = static_cast<size_t>(parameters.slot(p).node);
    layer_of_.push_back(engine_.model().nodes[node].layer);
  }
  set_scales(governor_.current(state_.control));
}

void Steering::set_scales(const control::Decision& decision) {
  for (size_t l = 0; l < decision.scales.size(); ++l) {
    engine_.scales()[l] = {static_cast<float>(decision.scales[l].y),
                           static_cast<float>(decision.scales[l].gy)};
  }
}

void Steering::set_rates(double rate) {
  // Clipping by the norm of the step before; other ways are the engine's own.
  const bool clips = config_.clip && engine_.spec().clip == exec::Clip::kNone;
  const double norm = state_.gradient_norm;
  const double shrink = clips && norm > *config_.clip ? *config_.clip / norm : 1;
  const std::span<optim::Hyper> hypers = engine_.hypers();
  for (size_t p = 0; p < hypers.size(); ++p) {
    const int layer = layer_of_[p];
    const double factor =
        layer < 0 ? 1 : governor_.step_factor(state_.control, static_cast<size_t>(layer), rate);
    hypers[p].lr = rate * factor;
    hypers[p].grad_scale = shrink;
  }
}

// Where nothing can follow from a window there is no need to speak of it.
bool Steering::decides() const {
  using Policy = control::PrecisionPolicy;
  const control::GovernorSettings& settings = governor_.settings();
  return settings.precision == Policy::kAdaptive || settings.precision == Policy::kAssign ||
         settings.batching != control::BatchPolicy::kFixed || config_.curvature != Curvature::kOff;
}

Result<std::vector<metrics::Fields>> Steering::after_step(const exec::StepReport& report,
                                                          double rate) {
  const control::PriceOf prices = pricing_.prices();
  control::Signals signals = signals_of(engine_, report, state_.control.batch);
  signals.step = state_.step;
  signals.samples = state_.samples;
  signals.rate = rate;
  signals.used_bytes = pricing_.bytes_now();
  signals.ceiling_bytes = state_.ceiling_bytes;
  if (signals.failed) {
    const int bad = report.first_bad;
    lost_values_ = bad < 0 ? "the loss was"
                           : fmt::format("values of layer '{}' were",
                                         governor_.layers()[static_cast<size_t>(bad)].name);
  } else {
    double squares = 0;
    for (const optim::GradStats& stats : report.gradients) squares += stats.sum_squares;
    state_.gradient_norm = std::sqrt(squares);
  }
  std::vector<metrics::Fields> events;
  control::GovernorState before = state_.control;
  const control::Decision at_once = governor_.watch(state_.control, signals, prices);
  if (!at_once.changes.empty() || signals.failed) {
    TRI_ASSIGN(metrics::Fields event, apply(at_once, before, signals, true));
    events.push_back(std::move(event));
  }
  diverged_ = at_once.diverged;
  const bool due = state_.step % static_cast<uint64_t>(config_.control_every) == 0;
  if (!due || diverged_ || !decides()) return events;
  control::Signals& window = state_.control.window;
  if (governor_.settings().precision == control::PrecisionPolicy::kAssign) {
    add_weight_overflows(engine_, window);
  }
  window.used_bytes = pricing_.bytes_now();
  window.batch = state_.control.batch;
  const control::Signals seen = window;
  before = state_.control;
  const control::Decision decision = governor_.decide(state_.control, prices);
  TRI_ASSIGN(metrics::Fields event, apply(decision, before, seen, false));
  events.push_back(std::move(event));
  return events;
}

bool Steering::curvature_due() const {
  return config_.curvature != Curvature::kOff && engine_.forecast().curvature_samples > 0 &&
         state_.step % static_cast<uint64_t>(config_.curvature_every) == 0;
}

metrics::Fields Steering::note_curvature(const exec::CurvatureReport& report, double rate) {
  std::vector<double> lambda;
  for (const exec::LayerCurvature& layer : report.layers) {
    lambda.push_back(std::ranges::max(layer.eigenvalues));  // hessian: not always the first
  }
  const exec::GradientNoise& noise = report.noise;
  const bool usable = std::ranges::all_of(lambda, [](double l) { return std::isfinite(l); });
  const bool noted = config_.curvature == Curvature::kFisher && noise.variance > 0 &&
                     std::isfinite(noise.variance) && std::isfinite(noise.squared_mean);
  if (usable) {
    governor_.estimate(
        state_.control, lambda,
        noted ? std::optional(control::GradientNoise{noise.variance, noise.squared_mean})
              : std::nullopt);
  }
  std::vector<metrics::Fields> layers;
  for (size_t l = 0; l < lambda.size(); ++l) {
    layers.push_back({{"name", governor_.layers()[l].name},
                      {"lambda", report.layers[l].eigenvalues},
                      {"trace", report.layers[l].trace},
                      {"step_size", rate * governor_.step_factor(state_.control, l, rate)}});
  }
  metrics::Fields event{{"curvature_samples", report.samples}, {"layers", layers}};
  if (const auto scale = state_.control.window.noise_scale) event.add("noise_scale", *scale);
  return event;
}

Result<metrics::Fields> Steering::move_ceiling(uint64_t bytes, const std::string& reason) {
  const uint64_t from = std::exchange(state_.ceiling_bytes, bytes);
  control::Signals at;
  at.step = state_.step;
  at.samples = state_.samples;
  control::GovernorState before = state_.control;
  auto [decision, signals] =
      decide_under(governor_, state_.control, pricing_, pricing_.bytes_now(), bytes, std::move(at));
  decision.changes.insert(decision.changes.begin(),
                          {"ceiling", base::format_bytes(from), base::format_bytes(bytes), reason});
  return apply(decision, before, signals, true);
}

Result<metrics::Fields> Steering::apply(const control::Decision& decision,
                                        const control::GovernorState& before,
                                        const control::Signals& signals, bool urgent) {
  const Result<void> planned =
      decision.changes.empty()
          ? Result<void>()
          : engine_.replan(pricing_.spec(decision.table, decision, state_.ceiling_bytes));
  if (!planned && planned.error().code != ErrorCode::kDoesNotFit) {
    return unexpected(planned.error());
  }
  if (!planned) {
    state_.control =
        without_plan(state_.control, before, governor_.settings().elastic.rest_windows);
    control::Decision kept = governor_.current(state_.control);
    kept.changes = {{"plan", "", "", "not changed: " + planned.error().message}};
    return event_fields(kept, signals, urgent);
  }
  set_scales(decision);
  return event_fields(decision, signals, urgent);
}

control::PrecisionShares Steering::shares() const {
  std::vector<int64_t> params;
  int64_t others = engine_.model().parameter_elements();
  for (const control::LayerFacts& layer : governor_.layers()) {
    params.push_back(layer.params);
    others -= layer.params;
  }
  return control::shares(governor_.current(state_.control).table, params, others);
}

std::optional<double> Steering::low_ratio() const {
  const control::Assignment& low = state_.control.assignment;
  if (low.empty()) return std::nullopt;
  return control::low_ratio(governor_.ops(), state_.control.batch, low);
}

}  // namespace tri::train
