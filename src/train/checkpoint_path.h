#pragma once
// Room: train. What people name when they mean a model. In: a run's directory, a checkpoint or a
// safetensors file. Out: the file of weights, and the state beside it where there is one.
#include <optional>
#include <string>

#include "train/run_state.h"
#include "tri/result.h"

namespace tri::train {

// A run's directory stands for its last checkpoint.
Result<std::string> model_file_of(const std::string& path);

struct SavedModel {
  std::string file;
  std::optional<RunState> state;  // none beside a plain file
};
// Verifies the checksums of a checkpoint.
Result<SavedModel> find_model(const std::string& path);

}  // namespace tri::train
