#include "train/run_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "checkpoint/directory.h"
#include "checkpoint/file.h"

namespace tri::train {
namespace {
namespace fs = std::filesystem;

using checkpoint::refused;

Result<void> make_directories(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return refused("create", path, error.value());
  return {};
}

// A writable directory with its folder of checkpoints.
Result<RunDirectory> prepare(const std::string& path) {
  const std::string checkpoints = path + "/checkpoints";
  TRI_TRY(make_directories(checkpoints));
  TRI_TRY(checkpoint::sync_directory(checkpoint::parent_of(path)));
  for (const std::string& folder : {path, checkpoints}) {
    if (::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
      return refused("write to", folder, errno);
    }
  }
  return RunDirectory{path};
}

// Puts a checkpoint back that a kill left half swapped, so that it is seen.
Result<bool> has_checkpoint(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(fs::path(path).parent_path(), ignored)) TRI_TRY(checkpoint::repair(path));
  return fs::exists(fs::path(path) / checkpoint::kManifest, ignored);
}

Result<RunDirectory> make_explicit(const std::string& path) {
  const RunDirectory run = {path};
  for (const std::string& place : {run.last(), run.best()}) {
    TRI_ASSIGN(const bool found, has_checkpoint(place));
    if (found) {
      return unexpected(ErrorCode::kInvalid,
                        fmt::format("--out {} holds the checkpoint of an earlier run; continue it "
                                    "with --resume {} or give another directory",
                                    path, path));
    }
  }
  return prepare(path);
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

std::string run_name(const Config& config) {
  return fmt::format("{}-{}-{}-{}", config.model, config.data.substr(0, config.data.find(':')),
                     name(config.method), config.seed);
}

Result<RunDirectory> make_run_directory(const Config& config, const std::string& base) {
  if (!config.out.empty()) return make_explicit(without_slash(config.out));
  TRI_TRY(make_directories(base));
  const std::string first = fmt::format("{}/{}", base, run_name(config));
  for (int number = 1;; ++number) {
    const std::string path = number == 1 ? first : fmt::format("{}-{}", first, number);
    // mkdir, unlike a look and a later creation, gives a name to one run only.
    if (::mkdir(path.c_str(), 0777) == 0) return prepare(path);
    if (errno != EEXIST) return refused("create", path, errno);
  }
}

Result<RunDirectory> find_run_directory(const std::string& path, std::string_view asked_by) {
  RunDirectory run = {without_slash(path)};
  TRI_ASSIGN(const bool found, has_checkpoint(run.last()));
  if (!found) {
    return unexpected(ErrorCode::kInvalid,
                      fmt::format("{} {} holds no checkpoint; give the directory of a run that "
                                  "has saved one",
                                  asked_by, path));
  }
  return run;
}

Result<RunLock> RunLock::take(const RunDirectory& run) {
  const int file = ::open(run.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return refused("open", run.path, errno);
  RunLock lock(file);
  // File systems that know no locks have none to respect.
  if (::flock(file, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return lock;
  return unexpected(
      ErrorCode::kInvalid,
      fmt::format("another process is at work on the run in '{}'; wait for its end, or "
                  "stop it, or give another directory",
                  run.path));
}

bool RunLock::is_held(const RunDirectory& run) {
  const int file = ::open(run.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return false;
  const bool held = ::flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(file);
  return held;
}

RunLock::~RunLock() {
  if (file_ >= 0) ::close(file_);
}

}  // namespace tri::train
