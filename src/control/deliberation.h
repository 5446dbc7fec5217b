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
               const PriceOf& price)
      : governor_(governor), state_(state), signals_(signals), price_(price) {}

  // Rule 1.
  void follow_loss_scale();
  void remedy_failure();
  void promote_overflows();
  void promote_curvature();
  void raise_layers();
  void widen_lossy();
  // Rule 2: rungs.cpp.
  void respect_ceiling();
  // Rule 3.
  void climb_back();  // rungs.cpp
  void lower_layers();
  void grant_wishes();
  void move_batch();

  Decision finish();

 private:
  const GovernorSettings& settings() const { return governor_.settings(); }
  const AdaptiveSettings& adaptive() const { return settings().adaptive; }
  bool has_levels() const { return !state_.layers.empty(); }
  Level should(const AdaptiveLayer& layer) const;
  ElasticSettings elastic() const;  // with the ghost batch of now, and what was asked for
  Price price(const StepShape& shape, uint64_t limit) const;
  uint64_t planned(const StepShape& shape) const { return price(shape, ceiling()).bytes; }
  bool fits() const { return planned(state_) <= ceiling(); }
  uint64_t ceiling() const;  // UINT64_MAX: none
  uint64_t share_of_ceiling(double rho) const;
  bool is_roomy() const;

  void set_level(size_t layer, Level level, const std::string& reason);
  void set_narrow(size_t layer, bool narrow, const std::string& reason);
  void set_batch(int64_t batch, std::string reason);
  void set_micros(int64_t micros, std::string reason);
  void set_ghost(int64_t ghost, std::string reason);
  void move_micros();
  double beyond_fp16(size_t layer) const;  // share of its values
  std::optional<size_t> culprit() const;
  bool raise_unnamed();

  // Rungs, see Note [Rungs]. Each gives up as little as suffices, or all it has.
  void recompute_blocks(const std::string& why);
  void cut_finer(const std::string& why);
  void take_back_wishes(const std::string& why);
  void narrow_outputs(const std::string& why);
  void shrink_batch(const std::string& why);
  void shrink_ghost(const std::string& why);

  // Whether what was tried fits, with room made by the rungs where needed.
  bool make_room(bool gently = false);
  bool rescued() const;
  void take_back_wish(size_t layer, const std::string& why);
  std::vector<size_t> granted_wishes() const;  // layers, largest first
  template <class Give>
  void give_up(const std::vector<size_t>& layers, const Give& give);
  template <class Restore>
  bool restore(const Restore& change);
  void note_blocks();
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
  const PriceOf& price_;
  std::vector<Change> changes_;
};

}  // namespace tri::control
