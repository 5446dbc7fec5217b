#pragma once
// Room: train. One step as a Chrome trace (chrome://tracing, Perfetto): a bar per tick on the row
// of its phase. In: an engine that has just run a step. Out: a file. Measures nothing itself.
#include <string>

#include "exec/engine.h"
#include "tri/result.h"

namespace tri::train {

// The step as JSON: an object with "traceEvents".
std::string trace_json(const exec::StepPlan& plan, std::span<const int64_t> tick_ns);

// Writes an empty trace: whether a file can be there is told before any step.
Result<void> begin_trace(const std::string& path);

// Writes the last step that `engine` ran, which was a training step.
Result<void> write_trace(const std::string& path, const exec::Engine& engine);

}  // namespace tri::train
