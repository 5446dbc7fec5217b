#include "train/checkpoint_path.h"

#include <fmt/format.h>

#include <filesystem>

#include "checkpoint/directory.h"
#include "train/model_file.h"
#include "train/run_directory.h"
#include "train/snapshot.h"

namespace tri::train {
namespace {

namespace fs = std::filesystem;

// The checkpoint that a directory is or holds.
std::string checkpoint_in(const std::string& path) {
  std::error_code ignored;
  const std::string last = RunDirectory{path}.last();
  return fs::is_directory(last, ignored) ? last : path;
}

}  // namespace

Result<SavedModel> find_model(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) {
    if (fs::exists(path, ignored)) return SavedModel{path, std::nullopt};
    return unexpected(ErrorCode::kInvalid,
                      fmt::format("there is no checkpoint at '{}'; check the path", path));
  }
  const std::string checkpoint = checkpoint_in(path);
  if (!fs::exists(fs::path(checkpoint) / checkpoint::kManifest, ignored)) {
    return unexpected(ErrorCode::kInvalid,
                      fmt::format("'{}' holds no checkpoint; give the directory of a run, a "
                                  "checkpoint in it or a safetensors file",
                                  path));
  }
  TRI_ASSIGN(RunState state, read_snapshot_state(checkpoint));
  return SavedModel{fmt::format("{}/{}", checkpoint, kModelFile), std::move(state)};
}

Result<std::string> model_file_of(const std::string& path) {
  TRI_ASSIGN(SavedModel found, find_model(path));
  return std::move(found.file);
}

}  // namespace tri::train
