#pragma once
// Room: control. Paper (a), 3.1: a layer's precision follows the variance of its gradient, smoothed
// over windows; curvature lifts it for a while, overflow for good. In: a window's signals. Out: for
// every layer the level it must have (safety) and the one it would like. What fits is the
// governor's to say.
//
// Note [Two voices]: must() comes from floors and curvature and is not negotiable; the wish comes
// from the variance. A layer is to have the higher of the two, so a promotion beats a demotion.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "control/decision.h"
#include "control/signals.h"

namespace tri::control {

struct AdaptiveSettings {
  double beta = 0.9;  // of the smoothed variance
  // true: thresholds act on the spread relative to the network's median layer. false: the paper's
  // own rule, on the variance itself as it would be at the first batch.
  bool relative = true;
  std::optional<double> tau_low = {}, tau_high = {};  // none: see thresholds()
  double margin = 2;           // a threshold is left by this factor before a layer goes back
  Level floor = Level::kFp16;  // of every layer
  double most_flushed = 0.01;  // share of values that FP16 or 8 bits may lose to zero
  std::optional<double> tau_curv = {};  // none: 2 / rate, the edge of stability
  double calm_share = 0.8;              // of tau_curv: below it an estimate counts as calm
  int64_t calm_estimates = 2;           // so many in a row end a promotion by curvature
  int64_t first_batch = 1;              // of the run
};

struct Thresholds {
  double low, high;
};
Thresholds thresholds(const AdaptiveSettings& settings);

// Until a layer's own maxima are known, which only a narrow format measures. Outputs of a layer are
// of ordinary size; their gradients are of a mean over the batch, far below 1, so that 2^12 leaves
// them a factor of 16 above 1 and 2^-36 below.
inline constexpr StoreScales kFirstScales{1, 0x1p12};

struct AdaptiveLayer {
  double spread = -1;  // smoothed; below 0: nothing seen yet
  Level level = Level::kBf16;
  Level floor = Level::kFp16;         // raised for good by overflow and by values lost to zero
  Level wish = Level::kBf16;          // by its variance
  bool curved = false;                // promoted by curvature
  int64_t calm = 0;                   // estimates in a row
  bool held = false;                  // kept lower than it should be for want of memory
  bool narrow = false;                // its saved output has 8 bits for want of memory
  bool lossy = false;                 // 8 bits were tried and lost too much: not again
  StoreScales scales = kFirstScales;  // of formats of little range
  std::string why_wish = {}, why_must = {};  // the latter empty while must() asks for nothing new
  bool operator==(const AdaptiveLayer&) const = default;
};

// What safety asks for, whatever it costs.
Level must(const AdaptiveSettings& settings, const AdaptiveLayer& layer);

// A window has ended: smooths, measures each layer against the thresholds, and sets `wish`.
void weigh(const AdaptiveSettings& settings, std::span<AdaptiveLayer> layers,
           const Signals& window);

// Starts and ends promotions by curvature. `lambda` by layer.
void weigh_curvature(const AdaptiveSettings& settings, std::span<AdaptiveLayer> layers,
                     std::span<const double> lambda, double rate);

// For good, one level above what the layer has, and to be tried even if something was held back
// before. False: there is none.
bool raise_floor(AdaptiveLayer& layer, std::string why);

// What a layer stores. Note [Narrow outputs]: under adaptive precision memory may ask for saved
// outputs of 8 bits, 1-4-3 as in paper (c); gradients keep the format of the level.
PrecisionRow row_of(const AdaptiveLayer& layer);

// The power of two that puts `amax` where `format` has about as much room above as a run may need
// and all of its range below. Keeps `scale` while that is good enough, so that it does not flutter.
double guard_scale(Format format, double amax, double scale);

}  // namespace tri::control
