#pragma once
// Room: train. Where a run keeps its files. In: the configuration. Out: a directory that exists and
// can be written. Knows the names of the files, not what is in them.
#include <string>
#include <string_view>
#include <utility>

#include "tri/config.h"
#include "tri/result.h"

namespace tri::train {

// A directory and the names in it.
struct RunDirectory {
  std::string path;

  std::string config() const { return path + "/config.toml"; }
  std::string metrics() const { return path + "/metrics.jsonl"; }
  std::string kernels() const { return path + "/kernels.json"; }  // with --tune
  std::string summary() const { return path + "/summary.json"; }
  std::string control() const { return path + "/control.json"; }
  std::string report() const { return path + "/report.html"; }
  std::string last() const { return path + "/checkpoints/last"; }
  std::string best() const { return path + "/checkpoints/best"; }
};

// "resnet18-fashion-mnist-triaccel-0"
std::string run_name(const Config& config);

// For a new run. An explicit --out is made or reused, unless it holds a checkpoint: that would be
// lost, so kInvalid points to --resume. Otherwise BASE/NAME, or the first free of BASE/NAME-2,
// BASE/NAME-3, ...: two runs started at once get two directories.
Result<RunDirectory> make_run_directory(const Config& config, const std::string& base = "runs");

// For a run that goes on or is looked at: a directory with a last checkpoint. kInvalid if there is
// none.
// `asked_by`: the option or command that named it, for the error.
Result<RunDirectory> find_run_directory(const std::string& path,
                                        std::string_view asked_by = "--resume");

// Held by the process that writes to a run, and gone with it: two would undo each other's work.
class RunLock {
 public:
  // Fails with kInvalid while another process has it.
  static Result<RunLock> take(const RunDirectory& run);
  static bool is_held(const RunDirectory& run);

  RunLock(RunLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  RunLock& operator=(RunLock&&) = delete;
  ~RunLock();

 private:
  explicit RunLock(int file) : file_(file) {}
  int file_;  // the directory; -1: nothing
};

}  // namespace tri::train
