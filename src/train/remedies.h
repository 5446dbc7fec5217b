#pragma once
// Room: train. What a run that does not fit could be given instead. In: its configuration, its
// network and a ceiling. Out: options as the user would write them, with what a run under them
// needs. Plans, takes nothing.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nn/model.h"
#include "train/step_pricing.h"
#include "tri/config.h"
#include "tri/plan.h"

namespace tri::train {

// What `train` makes of a configuration under a ceiling: as asked where that fits, else whatever
// the rungs that its modes open lead to.
struct FirstStep {
  control::Decision decision;
  exec::StepSpec spec;
  uint64_t bytes = 0;  // of the process; above the ceiling: it cannot be
};
FirstStep first_step(const Config& config, const nn::Model& model, const StepPricing& pricing,
                     uint64_t ceiling);

// Only what fits. `largest`: the largest batch that does, 0 if there is none.
Result<std::vector<PlannedRemedy>> find_remedies(const Config& config,
                                                 const std::shared_ptr<const nn::Model>& model,
                                                 const Besides& besides, uint64_t ceiling,
                                                 int64_t largest);
// The half sentence that names them.
std::string advice(const std::vector<PlannedRemedy>& remedies);

}  // namespace tri::train
