#include "train/config_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "control/precision/adaptive.h"
#include "train/invalid.h"

namespace tri::train {
namespace {

// Of the first batch. sgd: a little below the usual 0.1 per 128 samples, as the default batch is
// smaller and the schedule short; adam, adamw: their papers'; lars, lamb: theirs at small batches.
struct OptimizerDefaults {
  std::string_view name;
  double lr, weight_decay;
};
constexpr OptimizerDefaults kOptimizerDefaults[] = {{"sgd", 0.05, 5e-4},
                                                    {"adam", 1e-3, 0},
                                                    {"adamw", 1e-3, 0.01},
                                                    {"lars", 1.0, 5e-4},
                                                    {"lamb", 2e-3, 0.01}};

const OptimizerDefaults& defaults_of(std::string_view optimizer) {
  const auto* const found =
      std::ranges::find(kOptimizerDefaults, optimizer, &OptimizerDefaults::name);
  TRI_CHECK(found != std::end(kOptimizerDefaults), "optimizer {}", optimizer);
  return *found;
}

int64_t largest_divisor(int64_t number, int64_t most) {
  int64_t divisor = std::min(number, most);
  while (number % divisor != 0) --divisor;
  return divisor;
}

Result<void> check_batches(const Config& config) {
  const int64_t ghost = *config.ghost_batch;
  if (ghost > 0 && config.batch % ghost != 0) {
    return invalid(
        fmt::format("--ghost-batch {} does not divide --batch {}; give a divisor such "
                    "as {}",
                    ghost, config.batch, largest_divisor(config.batch, ghost)));
  }
  if (config.batch_mode != BatchMode::kElastic) return {};
  const std::pair<std::string_view, int64_t> sizes[] = {{"--batch-min", *config.batch_min},
                                                        {"--batch-max", *config.batch_max},
                                                        {"--delta-up", *config.delta_up},
                                                        {"--delta-down", *config.delta_down}};
  for (const auto& [flag, size] : sizes) {
    if (ghost > 0 && size % ghost != 0) {
      return invalid(
          fmt::format("{} {} is not a multiple of the ghost batch of {}; give one or "
                      "another --ghost-batch",
                      flag, size, ghost));
    }
  }
  if (*config.batch_min > config.batch || *config.batch_max < config.batch) {
    return invalid(
        fmt::format("--batch {} is not within --batch-min {} and --batch-max {}; widen "
                    "the bounds or start between them",
                    config.batch, *config.batch_min, *config.batch_max));
  }
  return {};
}

Result<void> check_optimisation(const Config& config) {
  if (*config.warmup > static_cast<double>(config.epochs)) {
    return invalid(
        fmt::format("--warmup {} is longer than --epochs {}; give fewer epochs of "
                    "warm-up",
                    *config.warmup, config.epochs));
  }
  const bool has_momentum = config.optimizer == "sgd" || config.optimizer == "lars";
  if (config.nesterov && !(has_momentum && config.momentum > 0)) {
    return invalid(
        fmt::format("--nesterov has nothing to act on with --optimizer {} and "
                    "--momentum {}; use sgd or lars with a momentum above 0",
                    config.optimizer, config.momentum));
  }
  if ((config.clip_exact || config.clip_layer) && !config.clip) {
    return invalid(fmt::format("--{} was given but --clip is off; give --clip NORM too",
                               config.clip_exact ? "clip-exact" : "clip-layer"));
  }
  if (config.clip_exact && config.clip_layer) {
    return invalid("--clip-exact and --clip-layer were both given; choose one of them");
  }
  return {};
}

Result<void> check_control(const Config& config) {
  if (config.rho_low >= config.rho_high) {
    return invalid(fmt::format("--rho-low {} is not below --rho-high {}; give a smaller one",
                               config.rho_low, config.rho_high));
  }
  const control::Thresholds taus =
      control::thresholds({.relative = config.variance_rule == VarianceRule::kRelative,
                           .tau_low = config.tau_low,
                           .tau_high = config.tau_high});
  if (taus.low >= taus.high) {
    return invalid(fmt::format("--tau-low {} is not below --tau-high {}; give a smaller one",
                               taus.low, taus.high));
  }
  // A Gram matrix of b gradients has b eigenvalues.
  if (config.curvature != Curvature::kOff && config.curvature_top > config.curvature_batch) {
    return invalid(
        fmt::format("--curvature-top {} asks for more eigenvalues than --curvature-batch "
                    "{} can show; give at most as many",
                    config.curvature_top, config.curvature_batch));
  }
  return {};
}

}  // namespace

int64_t default_ghost_batch(int64_t batch) { return largest_divisor(batch, 32); }

void derive(Config& config) {
  const auto fill = [](auto& field, auto value) {
    if (!field) field = value;
  };
  const OptimizerDefaults& defaults = defaults_of(config.optimizer);
  fill(config.lr, defaults.lr);
  fill(config.weight_decay, defaults.weight_decay);
  fill(config.warmup, std::min(5.0, static_cast<double>(config.epochs) / 3));

  const int64_t usual_ghost = default_ghost_batch(config.batch);
  fill(config.ghost_batch, config.batch_mode == BatchMode::kFixed ? int64_t{0} : usual_ghost);
  // Without ghost batches any batch will do; it then moves in steps of the usual one.
  const int64_t unit = *config.ghost_batch > 0 ? *config.ghost_batch : usual_ghost;
  fill(config.batch_min, unit);
  fill(config.batch_max, 8 * config.batch);
  fill(config.delta_up, unit);
  fill(config.delta_down, unit);
}

Result<void> check_together(const Config& config) {
  TRI_TRY(check_batches(config));
  TRI_TRY(check_optimisation(config));
  return check_control(config);
}

}  // namespace tri::train
