#pragma once
// Room: control. One decision in the making: the governor's rules as steps on a state that is tried
// out and taken back where it does not fit. Private to governor.cpp.
#include <optional>
#include <string>
#include <utility>

#include "control/governor.h"

namespace tri::control {

class Deliberation {
 public:
  Deliberation(const Governor& governor, GovernorState& state, const Signals& signals,
               const PlanBytes& plan)
      : governor_(governor), state_(state), signals_(signals), plan_(plan) {}

  // Rule 1.
  void follow_loss_scale();
  void remedy_failure();
  void promote_overflows();
  void promote_curvature();
  void raise_layers();
  // Rule 2.
  void respect_ceiling();
  // Rule 3.
  void lower_layers();
  void grant_wishes();
  void move_batch();

  Decision finish();

 private:
  const GovernorSettings& settings() const { return governor_.settings(); }
  const AdaptiveSettings& adaptive() const { return settings().adaptive; }
  bool has_levels() const { return !state_.layers.empty(); }
  Level should(const AdaptiveLayer& layer) const;
  uint64_t planned(int64_t batch, int64_t micros) const;
  uint64_t ceiling() const;  // UINT64_MAX: none
  uint64_t share_of_ceiling(double rho) const;
  bool is_roomy() const;

  void set_level(size_t layer, Level level, const std::string& reason);
  void set_batch(int64_t batch, std::string reason);
  void set_micros(int64_t micros, std::string reason);
  // Whether what was tried fits, with room made by rule 2 where needed.
  bool make_room();
  bool take_back_wish();
  void move_micros();
  bool raise_unnamed();
  // Runs `attempt`; undoes it if there can be no room for it.
  template <class Attempt>
  bool attempt(const Attempt& change) {
    GovernorState before = state_;
    const size_t count = changes_.size();
    change();
    if (make_room()) return true;
    state_ = std::move(before);
    changes_.resize(count);
    return false;
  }

  const Governor& governor_;
  GovernorState& state_;
  const Signals& signals_;
  const PlanBytes& plan_;
  std::vector<Change> changes_;
};

}  // namespace tri::control
