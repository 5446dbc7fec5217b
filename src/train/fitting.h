#pragma once
// Room: train. How a step gets below a ceiling: the rungs, from those that change nothing to those
// that change the run, each priced by the planner before any memory moves. In: what was asked for
// and a number of bytes. Out: a StepSpec that fits and what was given up for it, or a refusal. Used
// before a run, by `plan`, and between steps when the ceiling moves. Takes no memory.
//
// Note [Rungs]. Recomputing blocks changes no bit and is open to every run, but costs a third of
// the forward pass. So a run that may change its batch (elastic) or the size of its micro-batches
// (micro) does that first, down to half; then recomputes; then goes on down to one ghost batch. A
// fixed batch only recomputes. A smaller ghost batch changes what batch norm sees: it is the last
// rung and comes with a warning.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "exec/engine.h"
#include "tri/config.h"

namespace tri::train {

// One rung taken.
struct Rung {
  std::string what, from, to, reason;
  bool warn = false;  // changes what is learnt
};

struct Fit {
  exec::StepSpec spec;
  uint64_t engine_bytes = 0;
  std::vector<Rung> rungs;
};

// Bytes that the engine may use when a step has this many samples: the ceiling less all the rest of
// the process; 0: none.
using EngineRoom = std::function<uint64_t(int64_t samples)>;

// `asked`: the step as configured, batch and all. Nothing where no rung reaches the room.
std::optional<Fit> fit_step(const exec::Engine& engine, const Config& config,
                            const exec::StepSpec& asked, const EngineRoom& room);

// The names of the rungs that this configuration does not allow, for the refusal.
std::string closed_rungs(const Config& config);

}  // namespace tri::train
