#include "control/deliberation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "base/bytes.h"

namespace tri::control {
namespace {

constexpr int64_t kUnnamedFailures = 3;  // in a row, until all layers are suspects
constexpr int64_t kMostHelpless = 5;  // one bad batch may pass; so many in a row do not come back

std::string overflowed(double share) {
  return fmt::format("{:.2g} % overflowed fp16", 100 * share);
}

}  // namespace

Level Deliberation::should(const AdaptiveLayer& layer) const {
  return std::max(layer.wish, must(adaptive(), layer));
}

uint64_t Deliberation::ceiling() const {
  return signals_.ceiling_bytes > 0 ? signals_.ceiling_bytes : UINT64_MAX;
}

uint64_t Deliberation::share_of_ceiling(double rho) const {
  if (ceiling() == UINT64_MAX) return UINT64_MAX;
  return static_cast<uint64_t>(rho * static_cast<double>(ceiling()));
}

bool Deliberation::is_roomy() const {
  return signals_.used_bytes < share_of_ceiling(settings().elastic.rho_low);
}

Price Deliberation::price(const StepShape& shape, uint64_t limit) const {
  if (ceiling() == UINT64_MAX) return {.bytes = 0};
  return price_(governor_.current(state_).table, shape, limit);
}

ElasticSettings Deliberation::elastic() const {
  ElasticSettings now = settings().elastic;
  now.asked = settings().first_batch;
  if (state_.ghost < settings().ghost) now.unit = now.least = state_.ghost;
  return now;
}

void Deliberation::set_level(size_t layer, Level level, const std::string& reason) {
  AdaptiveLayer& one = state_.layers[layer];
  changes_.push_back({"precision " + governor_.layers()[layer].name, std::string(name(one.level)),
                      std::string(name(level)), reason});
  one.level = level;
  one.narrow = one.narrow && level < Level::kFp32;
  one.scales = kFirstScales;
  one.why_must.clear();
}

void Deliberation::set_narrow(size_t layer, bool narrow, const std::string& reason) {
  AdaptiveLayer& one = state_.layers[layer];
  const std::string from(numeric::spec(row_of(one).y).name);
  one.narrow = narrow;
  one.scales.y = kFirstScales.y;
  changes_.push_back({fmt::format("precision {} Y", governor_.layers()[layer].name), from,
                      std::string(numeric::spec(row_of(one).y).name), reason});
}

void Deliberation::set_batch(int64_t batch, std::string reason) {
  changes_.push_back(
      {"batch", fmt::format("{}", state_.batch), fmt::format("{}", batch), std::move(reason)});
  state_.batch = batch;
}

void Deliberation::set_micros(int64_t micros, std::string reason) {
  changes_.push_back({"micro-batches", fmt::format("{}", state_.micros), fmt::format("{}", micros),
                      std::move(reason)});
  state_.micros = micros;
}

void Deliberation::set_ghost(int64_t ghost, std::string reason) {
  changes_.push_back({"ghost batch", fmt::format("{}", state_.ghost), fmt::format("{}", ghost),
                      std::move(reason)});
  state_.ghost = ghost;
}

void Deliberation::follow_loss_scale() {
  const double before = state_.loss.scale;
  if (!follow(settings().loss_scale, state_.loss, signals_.failed, signals_.step,
              signals_.samples)) {
    return;
  }
  changes_.push_back({"loss scale", fmt::format("{}", before), fmt::format("{}", state_.loss.scale),
                      signals_.failed ? "gradients overflowed" : "no overflow for a long time"});
}

double Deliberation::beyond_fp16(size_t layer) const {
  const AdaptiveLayer& one = state_.layers[layer];
  const LayerSignals& seen = signals_.layers[layer];
  // A value beyond FP16 is an infinity, and one is enough. BF16 has the range of fp32.
  if (one.level != Level::kFp16 || must(adaptive(), one) > Level::kFp16) return 0;
  return std::max(one.narrow ? 0 : seen.y_overflow, seen.gy_overflow);
}

// Where the values of a lost step went astray. What lies behind is not finite either, which says
// nothing about the formats there: all gradients behind a loss that is no number, and behind that
// loss the outputs of all layers after the one that overflowed.
std::optional<size_t> Deliberation::culprit() const {
  if (signals_.first_bad >= 0) return static_cast<size_t>(signals_.first_bad);
  for (size_t l = 0; l < state_.layers.size(); ++l) {
    if (beyond_fp16(l) > 0 && signals_.layers[l].y_overflow > 0) return l;
  }
  return std::nullopt;
}

// A lost step that leaves something to try is not yet a step towards giving up.
void Deliberation::remedy_failure() {
  if (!signals_.failed) return;
  if (signals_.step != state_.lost_step + 1) state_.failures = state_.helpless = 0;
  state_.lost_step = signals_.step;
  ++state_.failures;
  bool helped = !changes_.empty();  // the loss scale fell
  if (has_levels()) {
    if (const auto layer = culprit()) {
      const double beyond = beyond_fp16(*layer);
      helped |= raise_floor(state_.layers[*layer],
                            beyond > 0 ? overflowed(beyond) : "values of it were not finite");
    } else if (state_.failures % kUnnamedFailures == 0) {
      helped |= raise_unnamed();
    }
  }
  state_.helpless = helped ? 0 : state_.helpless + 1;
}

bool Deliberation::raise_unnamed() {
  bool raised = false;
  for (AdaptiveLayer& layer : state_.layers) {
    raised |= raise_floor(
        layer, fmt::format("{} steps in a row were lost, in no known layer", state_.failures));
  }
  return raised;
}

void Deliberation::promote_overflows() {
  for (size_t l = 0; l < state_.layers.size() && !signals_.failed; ++l) {
    const double beyond = beyond_fp16(l);
    if (beyond > 0) raise_floor(state_.layers[l], overflowed(beyond));
  }
  if (settings().precision != PrecisionPolicy::kAssign || !settings().promote_share) return;
  const double most = *settings().promote_share;
  const std::span<const AssignOp> ops = governor_.ops();
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].layer < 0) continue;
    const auto l = static_cast<size_t>(ops[i].layer);
    const auto promote = [&](bool LowTensors::*tensor, double share, const char* role) {
      if (!(state_.assignment[i].*tensor) || share < most || share <= 0) return;
      const std::string what = fmt::format("precision {} {}", governor_.layers()[l].name, role);
      const std::string low(numeric::spec(Format::kF8e4b4).name);
      const std::string high(numeric::spec(Format::kF16e6).name);
      const std::string why = fmt::format("{:.2g} % of its elements overflowed", 100 * share);
      const bool fits = attempt([&] {
        state_.assignment[i].*tensor = false;
        changes_.push_back({what, low, high, why});
      });
      if (fits || std::exchange(state_.assignment[i].denied, true)) return;  // was said before
      changes_.push_back({what, low, low, fmt::format("{}, but {} does not fit", why, high)});
    };
    if (ops[i].kind == AssignOp::Kind::kGemm) {
      promote(&LowTensors::p, signals_.layers[l].p_overflow, "P");
    }
    if (ops[i].stored) promote(&LowTensors::y, signals_.layers[l].y_overflow, "Y");
  }
}

void Deliberation::promote_curvature() {
  if (signals_.lambda.empty() || settings().precision != PrecisionPolicy::kAdaptive) return;
  weigh_curvature(adaptive(), state_.layers, signals_.lambda, signals_.rate);
}

void Deliberation::raise_layers() {
  std::vector<size_t> low;
  for (size_t l = 0; l < state_.layers.size(); ++l) {
    const AdaptiveLayer& layer = state_.layers[l];
    if (layer.level >= must(adaptive(), layer) || (layer.held && !is_roomy())) continue;
    low.push_back(l);
  }
  const auto raise = [this](size_t l) {
    const std::string why = state_.layers[l].why_must;
    set_level(l, must(adaptive(), state_.layers[l]), why);
    state_.layers[l].held = false;
  };
  if (low.empty() || attempt([&] { std::ranges::for_each(low, raise); })) return;
  for (const size_t l : low) {
    if (attempt([&] { raise(l); })) continue;
    AdaptiveLayer& layer = state_.layers[l];
    if (std::exchange(layer.held, true)) continue;  // was said before
    const std::string level(name(layer.level));
    changes_.push_back(
        {"precision " + governor_.layers()[l].name, level, level,
         fmt::format("{}, but {} does not fit", layer.why_must, name(must(adaptive(), layer)))});
  }
}

void Deliberation::widen_lossy() {
  for (size_t l = 0; l < state_.layers.size(); ++l) {
    if (!state_.layers[l].lossy || !state_.layers[l].narrow) continue;
    attempt([&] { set_narrow(l, false, "too many of its values were lost in 8 bits"); });
  }
}

void Deliberation::lower_layers() {
  for (size_t l = 0; l < state_.layers.size(); ++l) {
    const AdaptiveLayer& layer = state_.layers[l];
    if (should(layer) >= layer.level) continue;
    const std::string why = layer.why_must.empty() ? layer.why_wish : layer.why_must;
    set_level(l, should(layer), why);
  }
}

void Deliberation::grant_wishes() {
  std::vector<size_t> order;
  for (size_t l = 0; l < state_.layers.size(); ++l) {
    const AdaptiveLayer& layer = state_.layers[l];
    const bool kept_low = layer.narrow || (layer.held && !is_roomy());
    if (layer.wish > layer.level && !kept_low) order.push_back(l);
  }
  if (order.empty()) return;
  const uint64_t limit = share_of_ceiling(settings().elastic.rho_high);
  const Price now = price(state_, ceiling());
  const auto fits_with = [&](std::span<const size_t> chosen) {
    const GovernorState before = state_;
    for (const size_t l : chosen) state_.layers[l].level = state_.layers[l].wish;
    const Price then = price(state_, ceiling());
    state_ = before;
    // What costs nothing is granted wherever the step stands.
    return then.bytes <= limit || (then.bytes <= now.bytes && then.blocks <= now.blocks);
  };
  const bool all = fits_with(order);
  std::ranges::stable_sort(order, {}, [&](size_t l) { return governor_.layers()[l].y_elements; });
  for (const size_t l : order) {
    AdaptiveLayer& layer = state_.layers[l];
    layer.held = !all && !fits_with({&l, 1});
    if (!layer.held) set_level(l, layer.wish, std::string(layer.why_wish));
  }
}

void Deliberation::move_batch() {
  const bool moved = std::ranges::any_of(changes_, [](const Change& change) {
    return change.what == "batch" || change.what == "micro-batches";
  });
  if (moved) return;
  const bool pressed = signals_.used_bytes > share_of_ceiling(settings().elastic.rho_high);
  if (pressed && settings().precision == PrecisionPolicy::kAdaptive) {
    const std::vector<size_t> granted = granted_wishes();
    if (!granted.empty()) return take_back_wish(granted.front(), "memory is short");
  }
  if (settings().batching == BatchPolicy::kMicro) return move_micros();
  if (settings().batching != BatchPolicy::kElastic) return;
  const BatchMove move =
      elastic_move(elastic(), state_.batch, state_.rest,
                   {signals_.used_bytes, signals_.ceiling_bytes, state_.noise_scale, rescued()},
                   [this](int64_t batch) {
                     StepShape shape = state_;
                     // Nothing is recomputed for the sake of growth.
                     shape.recompute = shape.recompute && batch < state_.batch;
                     shape.batch = batch;
                     return planned(shape);
                   });
  if (move.batch != state_.batch) set_batch(move.batch, move.reason);
}

void Deliberation::move_micros() {
  const uint64_t limit = share_of_ceiling(settings().elastic.rho_high);
  const bool pressed = signals_.used_bytes > limit || rescued();
  if (!pressed && !(is_roomy() && state_.micros > 1)) return;
  StepShape shape = state_;
  shape.recompute = false;
  const auto micros = least_micros(state_.batch, elastic().unit, limit, [&](int64_t m) {
    shape.micros = m;
    return planned(shape);
  });
  if (!micros || (pressed ? *micros <= state_.micros : *micros >= state_.micros)) return;
  set_micros(*micros, fmt::format("{} in use of {}", base::format_bytes(signals_.used_bytes),
                                  base::format_bytes(ceiling())));
  state_.recompute = false;
}

Decision Deliberation::finish() {
  note_blocks();
  state_.changes += changes_.size();
  Decision decision = governor_.current(state_);
  decision.diverged = signals_.failed && state_.helpless >= kMostHelpless;
  for (size_t l = 0; l < governor_.layers().size(); ++l) {
    decision.step_factors.push_back(governor_.step_factor(state_, l, signals_.rate));
  }
  decision.changes = std::move(changes_);
  return decision;
}

}  // namespace tri::control
