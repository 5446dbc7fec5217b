#pragma once
// Room: control. Paper (a), 3.2: a layer's step shrinks where its curvature is large,
// eta_l = eta / (1 + alpha * max(lambda, 0)).
#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"

namespace tri::control {

struct StepSizeSettings {
  bool on = false;
  // None: eta / 2, eta being the rate of the moment. Then eta_l * lambda < 2 always, which is the
  // edge of stability, and the rule bites only near it.
  std::optional<double> alpha = {};
  double keep = 0.5;  // weight of the earlier estimates against a new one
};

// `smooth` by layer, empty before the first estimate, which is taken as it is.
inline void smooth_curvature(const StepSizeSettings& settings, std::vector<double>& smooth,
                             std::span<const double> lambda) {
  if (smooth.empty()) smooth.assign(lambda.begin(), lambda.end());
  TRI_CHECK(smooth.size() == lambda.size(), "{} and {} layers", smooth.size(), lambda.size());
  for (size_t l = 0; l < lambda.size(); ++l) {
    smooth[l] = settings.keep * smooth[l] + (1 - settings.keep) * lambda[l];
  }
}

// Of the whole gradient: the trace of its covariance over single samples, and the squared norm of
// its mean, both unbiased, so that the second may fall below zero.
struct GradientNoise {
  double variance = 0, squared_mean = 0;
  bool operator==(const GradientNoise&) const = default;

  // The batch at which noise and mean weigh the same; none where the mean cannot be told from
  // noise, which bounds no batch.
  std::optional<double> scale() const {
    if (squared_mean <= 0 || variance <= 0) return std::nullopt;
    return variance / squared_mean;
  }
};

// Numerator and denominator each for itself: a quotient of two noisy numbers has no useful mean.
inline void smooth_noise(const StepSizeSettings& settings, std::optional<GradientNoise>& smooth,
                         const GradientNoise& noise) {
  if (!smooth) smooth = noise;
  smooth->variance = settings.keep * smooth->variance + (1 - settings.keep) * noise.variance;
  smooth->squared_mean =
      settings.keep * smooth->squared_mean + (1 - settings.keep) * noise.squared_mean;
}

// What a layer's rate is multiplied with; in (0, 1].
inline double step_factor(const StepSizeSettings& settings, double rate, double lambda) {
  if (!settings.on) return 1;
  return 1 / (1 + settings.alpha.value_or(rate / 2) * std::max(lambda, 0.0));
}

}  // namespace tri::control
