#include "control/governor.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "control/deliberation.h"

namespace tri::control {
namespace {

PrecisionTable table_of(const Governor& governor, const GovernorState& state) {
  const size_t layers = governor.layers().size();
  if (!state.assignment.empty()) return table_of(governor.ops(), state.assignment, layers);
  if (state.layers.empty()) {
    return PrecisionTable(layers, {Format::kF16, Format::kF16, Format::kF16, Format::kF32});
  }
  PrecisionTable table;
  for (const AdaptiveLayer& layer : state.layers) table.push_back(row_of(layer));
  return table;
}

Assignment first_assignment(const GovernorSettings& settings, std::span<const AssignOp> ops) {
  using Policy = PrecisionPolicy;
  switch (settings.precision) {
    case Policy::kFp16x169:
      return assign(ops, settings.first_batch, {.low_share = 0});
    case Policy::kFp8:
      return assign(ops, settings.first_batch, {.low_share = 1});
    case Policy::kHfp8:
      return assign_hfp8(ops);
    case Policy::kAssign:
      return assign(ops, settings.first_batch, settings.assign);
    case Policy::kAdaptive:
    case Policy::kFp32:
    case Policy::kBf16:
    case Policy::kFp16:
      return {};
  }
  return {};
}

}  // namespace

bool scales_loss(PrecisionPolicy policy) {
  using Policy = PrecisionPolicy;
  return policy != Policy::kAdaptive && policy != Policy::kFp32 && policy != Policy::kBf16;
}

Governor::Governor(const GovernorSettings& settings, std::vector<LayerFacts> layers,
                   std::vector<AssignOp> ops)
    : settings_(settings), layers_(std::move(layers)), ops_(std::move(ops)) {
  settings_.adaptive.first_batch = settings_.first_batch;
}

GovernorState Governor::start() const {
  using Policy = PrecisionPolicy;
  GovernorState state;
  state.batch = settings_.first_batch;
  state.ghost = settings_.ghost;
  state.loss = first_scale(settings_.loss_scale);
  state.assignment = first_assignment(settings_, ops_);
  if (state.assignment.empty() && settings_.precision != Policy::kFp16) {
    const Level level = settings_.precision == Policy::kFp32 ? Level::kFp32 : Level::kBf16;
    const Level floor = settings_.precision == Policy::kAdaptive ? settings_.adaptive.floor : level;
    state.layers.assign(layers_.size(), {.level = std::max(level, floor), .floor = floor});
  }
  return state;
}

Decision Governor::current(const GovernorState& state) const {
  Decision decision;
  static_cast<StepShape&>(decision) = state;
  decision.table = table_of(*this, state);
  decision.scales.resize(layers_.size());
  for (size_t l = 0; l < state.layers.size(); ++l) {
    const AdaptiveLayer& layer = state.layers[l];
    if (layer.level == Level::kFp16 || layer.narrow) decision.scales[l] = layer.scales;
  }
  decision.blocks = state.blocks;
  decision.loss_scale = state.loss.scale;
  return decision;
}

Decision Governor::watch(GovernorState& state, const Signals& step, const PriceOf& price) const {
  join(state.window, step);
  return react(state, step, price);
}

Decision Governor::react(GovernorState& state, const Signals& step, const PriceOf& price) const {
  TRI_CHECK(step.layers.size() == layers_.size(), "signals of {} layers, not {}",
            step.layers.size(), layers_.size());
  Deliberation deliberation(*this, state, step, price);
  deliberation.follow_loss_scale();
  deliberation.remedy_failure();
  deliberation.promote_overflows();
  deliberation.raise_layers();
  deliberation.respect_ceiling();
  return deliberation.finish();
}

Decision Governor::decide(GovernorState& state, const PriceOf& price) const {
  const Signals window = std::exchange(state.window, {});
  return decide(state, window, price);
}

Decision Governor::decide(GovernorState& state, const Signals& window, const PriceOf& price) const {
  if (!window.lambda.empty()) state.noise_scale = window.noise_scale;
  Deliberation deliberation(*this, state, window, price);
  deliberation.promote_overflows();
  deliberation.promote_curvature();
  if (settings_.precision == PrecisionPolicy::kAdaptive) {
    weigh(settings_.adaptive, state.layers, window);
  }
  deliberation.lower_layers();
  deliberation.raise_layers();
  deliberation.widen_lossy();
  deliberation.respect_ceiling();
  deliberation.climb_back();
  deliberation.grant_wishes();
  deliberation.move_batch();
  return deliberation.finish();
}

void Governor::estimate(GovernorState& state, std::vector<double> lambda,
                        std::optional<GradientNoise> noise) const {
  TRI_CHECK(lambda.size() == layers_.size(), "curvature of {} layers, not {}", lambda.size(),
            layers_.size());
  smooth_curvature(settings_.step_size, state.lambda, lambda);
  state.window.lambda = std::move(lambda);
  if (noise) smooth_noise(settings_.step_size, state.noise, *noise);
  state.window.noise_scale = state.noise ? state.noise->scale() : std::nullopt;
}

double Governor::step_factor(const GovernorState& state, size_t layer, double rate) const {
  if (state.lambda.empty()) return 1;
  return control::step_factor(settings_.step_size, rate, state.lambda[layer]);
}

}  // namespace tri::control
