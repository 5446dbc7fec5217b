#include "control/precision/adaptive.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace tri::control {
namespace {

// Room for values to grow until the next window: where a scaled maximum is put, as a power of two,
// and between which it is left alone. FP16 ends at 2^16; 8 bits end at 30 and saturate.
struct Aim {
  int aim, least, most;
};
constexpr Aim aim_of(Format format) {
  return format == Format::kF16 ? Aim{10, 7, 13} : Aim{2, 0, 3};
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// What the thresholds are measured in: 1 for a layer at the median, or a variance.
double yardstick(const AdaptiveSettings& settings, std::span<const AdaptiveLayer> layers) {
  if (!settings.relative) return static_cast<double>(settings.first_batch);
  std::vector<double> seen;
  for (const AdaptiveLayer& layer : layers) {
    if (layer.spread > 0) seen.push_back(layer.spread);
  }
  return median(std::move(seen));
}

Level by_variance(const AdaptiveSettings& settings, Level now, double value) {
  const auto [low, high] = thresholds(settings);
  if (value >= (now == Level::kFp32 ? high / settings.margin : high)) return Level::kFp32;
  if (value < (now == Level::kFp16 ? low * settings.margin : low)) return Level::kFp16;
  return Level::kBf16;
}

// FP16 has 10 bits of mantissa and little range. A layer that loses too much to zero even under its
// scale is kept out of it for good: trying again would be flapping.
void guard_fp16(const AdaptiveSettings& settings, AdaptiveLayer& layer, const LayerSignals& seen) {
  if (layer.level != Level::kFp16) return;
  const double flushed = std::max(layer.narrow ? 0 : seen.y_underflow, seen.gy_underflow);
  if (flushed > settings.most_flushed) {
    raise_floor(layer, fmt::format("{:.2g} % of its values became zero in fp16", 100 * flushed));
  }
  if (!layer.narrow) layer.scales.y = guard_scale(Format::kF16, seen.y_amax, layer.scales.y);
  layer.scales.gy = guard_scale(Format::kF16, seen.gy_amax, layer.scales.gy);
}

// What is lost under a scale that had to change says nothing about the next one.
void guard_narrow(const AdaptiveSettings& settings, AdaptiveLayer& layer,
                  const LayerSignals& seen) {
  if (!layer.narrow) return;
  const double before = layer.scales.y;
  layer.scales.y = guard_scale(Format::kF8e4b4, seen.y_amax, before);
  const double lost = std::max(seen.y_overflow, seen.y_underflow);
  if (layer.scales.y == before && lost > settings.most_flushed) layer.lossy = true;
}

}  // namespace

Thresholds thresholds(const AdaptiveSettings& settings) {
  // The paper gives none. Relative: found by `experiment tune` (docs/results.md); of resnet18 on
  // CIFAR-10 most layers lie between 0.04 and 8 times the median, its first at up to 200 and its
  // last, which is small, at up to 5000. Absolute: the squares of gradients of 1e-4, which FP16
  // still holds, and of 3e-2.
  const Thresholds usual = settings.relative ? Thresholds{0.3, 100} : Thresholds{1e-8, 1e-3};
  return {settings.tau_low.value_or(usual.low), settings.tau_high.value_or(usual.high)};
}

Level must(const AdaptiveSettings& settings, const AdaptiveLayer& layer) {
  if (layer.curved) return Level::kFp32;
  return std::max(settings.floor, layer.floor);
}

void weigh(const AdaptiveSettings& settings, std::span<AdaptiveLayer> layers,
           const Signals& window) {
  TRI_CHECK(window.layers.size() == layers.size(), "{} and {} layers", window.layers.size(),
            layers.size());
  if (window.steps == 0) return;  // nothing but lost steps
  for (size_t l = 0; l < layers.size(); ++l) {
    AdaptiveLayer& layer = layers[l];
    const double now = window.layers[l].spread;
    layer.spread =
        layer.spread < 0 ? now : settings.beta * layer.spread + (1 - settings.beta) * now;
  }
  const double unit = yardstick(settings, layers);
  for (size_t l = 0; l < layers.size(); ++l) {
    AdaptiveLayer& layer = layers[l];
    guard_fp16(settings, layer, window.layers[l]);
    guard_narrow(settings, layer, window.layers[l]);
    if (unit <= 0) continue;
    const double value = layer.spread / unit;
    layer.wish = by_variance(settings, layer.level, value);
    layer.why_wish = fmt::format("gradient variance is {:.3g}{}", value,
                                 settings.relative ? " times the median layer's" : "");
  }
}

void weigh_curvature(const AdaptiveSettings& settings, std::span<AdaptiveLayer> layers,
                     std::span<const double> lambda, double rate) {
  TRI_CHECK(lambda.size() == layers.size(), "{} and {} layers", lambda.size(), layers.size());
  const double edge = rate > 0 ? 2 / rate : std::numeric_limits<double>::infinity();
  const double tau = settings.tau_curv.value_or(edge);
  for (size_t l = 0; l < layers.size(); ++l) {
    AdaptiveLayer& layer = layers[l];
    if (lambda[l] > tau) {
      layer.calm = 0;
      if (!layer.curved) {
        layer.why_must = fmt::format("curvature {:.3g} is above {:.3g}", lambda[l], tau);
        layer.held = false;
      }
      layer.curved = true;
    } else if (layer.curved) {
      layer.calm = lambda[l] < settings.calm_share * tau ? layer.calm + 1 : 0;
      if (layer.calm < settings.calm_estimates) continue;
      layer.curved = false;
      layer.calm = 0;
      layer.why_must = fmt::format("curvature fell to {:.3g}, below {:.3g}", lambda[l], tau);
    }
  }
}

bool raise_floor(AdaptiveLayer& layer, std::string why) {
  const Level from = std::max(layer.level, layer.floor);
  if (from == Level::kFp32) return false;
  layer.floor = static_cast<Level>(static_cast<int>(from) + 1);
  layer.why_must = std::move(why);
  layer.held = false;
  return true;
}

PrecisionRow row_of(const AdaptiveLayer& layer) {
  PrecisionRow row = row_of(layer.level);
  if (layer.narrow) row.y = Format::kF8e4b4;
  return row;
}

double guard_scale(Format format, double amax, double scale) {
  if (!(amax > 0) || !std::isfinite(amax)) return scale;
  const auto [aim, least, most] = aim_of(format);
  const int now = std::ilogb(amax * scale);
  if (now >= least && now <= most) return scale;
  // Both the scale and its inverse stay ordinary numbers of fp32.
  return std::ldexp(1.0, std::clamp(aim - std::ilogb(amax), -120, 120));
}

}  // namespace tri::control
