#pragma once
// Room: train. A run at one moment, on disk: model.safetensors for everybody, optimizer.safetensors
// with the exact bytes of weights, optimizer state and running statistics, state.json. A resumed
// run reads the last two alone, so nothing is lost to a conversion. Streams in pieces.
#include <string>

#include "checkpoint/safetensors_header.h"
#include "exec/engine.h"
#include "train/run_state.h"
#include "tri/result.h"

namespace tri::train {

inline constexpr std::string_view kOptimizerFile = "optimizer.safetensors";
inline constexpr std::string_view kStateFile = "state.json";

// Replaces the checkpoint `path` at once, or leaves it as it was.
Result<void> save_snapshot(const std::string& path, exec::Engine& engine, const RunState& state,
                           checkpoint::DType export_dtype);

// Verifies every checksum first.
Result<RunState> read_snapshot_state(const std::string& path);
// REQUIRES: an engine of the same configuration, memory obtained. Otherwise kFailed.
Result<void> load_snapshot(const std::string& path, exec::Engine& engine);

}  // namespace tri::train
