#pragma once
// apps/experiment. A replay for people: what other settings would have decided, line by line where
// it differs from what the run did.
#include <string>

#include "experiment/results.h"
#include "tri/replay.h"

namespace tri::experiment {

// Lines with '-' only the run has, lines with '+' only the replay; what both have is counted.
std::string to_text(const Replay& replay);
Json to_json(const Replay& replay);

}  // namespace tri::experiment
