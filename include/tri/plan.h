#pragma once
// Door of room train: what a run would need, before it. Plans every buffer of the engine and takes
// none; opens no data and trains nothing.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tri/config.h"
#include "tri/result.h"

namespace tri {

struct PlannedLayer {
  std::string name;
  int64_t params = 0;
  uint64_t weights_bytes = 0, state_bytes = 0;
  uint64_t saved_bytes = 0;  // activations kept from forward to backward
  // Formats at the start: of the weight at work, the saved output, their gradients, and the
  // optimizer's state ("none": it has no moments).
  std::string_view p, y, gy, gp;
  std::string m;
  // Of both passes, as the shape says; --tune may find others that fit as well.
  std::string_view forward_kernel, backward_kernel;
  std::string_view products;  // what they multiply on this machine: fp32 or bf16
};

// Other settings that would fit, as the user would write them.
struct PlannedRemedy {
  std::string options;
  uint64_t process_peak_bytes = 0;
};

// What a run would do differently from what it was asked, to stay below its ceiling.
struct PlannedChange {
  std::string what, from, to, reason;
};

struct MemoryPlan {
  bool fits = false;
  int64_t batch = 0;
  uint64_t ceiling_bytes = 0;
  uint64_t engine_peak_bytes = 0;   // exact
  uint64_t process_peak_bytes = 0;  // the engine's and what the process holds besides
  int64_t max_batch = 0;            // largest that fits, a multiple of the ghost batch; 0: none
  int64_t params = 0;
  std::vector<std::pair<std::string_view, uint64_t>> by_kind;  // each kind's own maximum
  std::vector<PlannedLayer> layers;
  // Paper (c)'s own measure, for its policies: the bits of all tensors of a step, alive or not, and
  // twice the share that low formats save of them.
  std::optional<uint64_t> tensor_bits;
  std::optional<double> low_ratio;
  std::vector<PlannedChange> changes;   // with which it fits
  std::vector<PlannedRemedy> remedies;  // only where it does not fit
};

// A plan that does not fit is a plan, not an error. Without --data, --pixels or --classes mean
// images of three channels that belong to no data set.
Result<MemoryPlan> plan_memory(const ResolvedConfig& resolved);

// The one sentence for a plan that does not fit.
std::string refusal(const MemoryPlan& plan);

}  // namespace tri
