#pragma once
// Room: control. The loss scale that keeps gradients inside a narrow format, as PyTorch's
// GradScaler keeps it: halved by a step that overflowed, doubled after a long time without one.
#include <algorithm>
#include <cstdint>

namespace tri::control {

struct LossScaleSettings {
  bool on = false;
  double first = 65536;
  double floor = 1;
  uint64_t growth_steps = 2000;  // good ones until it doubles; 0: count samples
  uint64_t growth_samples = 0;   // paper (c): those of an epoch
};

struct LossScale {
  double scale = 1;
  uint64_t since_step = 0, since_samples = 0;  // of the last change or failure
  uint64_t skipped = 0;                        // steps, of the whole run
  bool operator==(const LossScale&) const = default;
};

inline LossScale first_scale(const LossScaleSettings& settings) {
  return {.scale = settings.on ? settings.first : 1};
}

// Behind a step, `step` and `samples` counted from the start of the run. True: the scale has
// changed. Steps that went well need not be told one by one.
inline bool follow(const LossScaleSettings& settings, LossScale& state, bool failed, uint64_t step,
                   uint64_t samples) {
  const bool due =
      settings.growth_steps > 0
          ? step - state.since_step >= settings.growth_steps
          : settings.growth_samples > 0 && samples - state.since_samples >= settings.growth_samples;
  if (failed) ++state.skipped;
  if (!failed && !(settings.on && due)) return false;
  state.since_step = step;
  state.since_samples = samples;
  if (!settings.on) return false;
  const double before = state.scale;
  if (failed) {
    state.scale = std::max(settings.floor, state.scale / 2);
  } else if (state.scale < 0x1p96) {  // far above any gradient's need, far below infinity
    state.scale *= 2;
  }
  return state.scale != before;
}

}  // namespace tri::control
