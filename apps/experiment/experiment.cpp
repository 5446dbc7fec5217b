#include "experiment/experiment.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>

#include "experiment/child.h"
#include "experiment/planned_run.h"

namespace tri::experiment {
namespace {

constexpr int kDoesNotFit = 3, kDivergedCode = 4;  // exit codes; see README.md

std::string results_folder(const Options& options) {
  if (!options.out.empty()) return options.out;
  std::error_code ignored;
  return std::filesystem::is_directory("docs/results", ignored) ? "docs/results" : "results";
}

std::string duration(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", seconds);
  if (seconds < 5400) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

// From measured times: other seeds of the row, else rows of its block, else all. Nothing where
// nothing was measured yet.
std::optional<double> expected_seconds(const PlannedRun& run, const Grid& grid,
                                       const Results& results) {
  const auto mean_where = [&](auto&& belongs) -> std::optional<double> {
    std::vector<double> seconds;
    for (const Row& row : grid.rows) {
      if (!belongs(row)) continue;
      const auto more = results.values(row, "wall_seconds");
      seconds.insert(seconds.end(), more.begin(), more.end());
    }
    if (seconds.empty()) return std::nullopt;
    return spread_of(seconds).mean;
  };
  if (auto own = mean_where([&](const Row& row) { return &row == run.row; })) return own;
  if (auto near = mean_where([&](const Row& row) { return row.block == run.row->block; })) {
    return near;
  }
  return mean_where([](const Row&) { return true; });
}

class Runner {
 public:
  Runner(const Grid& grid, const Options& options)
      : grid_(grid), options_(options), results_(Results::read(results_folder(options), grid)) {}

  Result<std::vector<std::string>> commands() {
    TRI_TRY(look());
    std::vector<std::string> lines;
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (progress_[i] == Progress::kDone) continue;
      TRI_ASSIGN(const auto arguments, arguments_of(runs_[i], grid_, options_, progress_[i]));
      lines.push_back(command_line(arguments));
    }
    return lines;
  }

  Result<Results> run() {
    TRI_TRY(look());
    TRI_TRY(recover());
    say("{}: {} runs, {} done, {}\n", grid_.name, runs_.size(), done_, left_text());
    TRI_TRY(results_.write_markdown(grid_));
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (progress_[i] != Progress::kDone) TRI_TRY(make(i));
    }
    say("results: {} and {}\n", results_.markdown_path(), results_.jsonl_path());
    if (failed_ == 0) return results_;
    return unexpected(ErrorCode::kFailed,
                      fmt::format("{} of {} runs failed, the others are in '{}'; see the sentences "
                                  "above and call again",
                                  failed_, runs_.size(), results_.markdown_path()));
  }

 private:
  template <class... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) const {
    if (options_.quiet) return;
    fmt::print(stderr, format, std::forward<Args>(args)...);
    std::fflush(stderr);
  }

  // Nothing is started before every run is known to be possible.
  Result<void> look() {
    runs_ = planned_runs(grid_, options_);
    if (runs_.empty()) {
      return unexpected(ErrorCode::kInvalid,
                        fmt::format("no row of {} has '{}' in its name; --dry-run without --only "
                                    "shows them",
                                    grid_.name, options_.only));
    }
    std::map<std::string, const Row*> taken;
    for (const PlannedRun& run : runs_) {
      const auto [other, is_new] = taken.emplace(run.name, run.row);
      if (!is_new) {
        return unexpected(ErrorCode::kInvalid,
                          fmt::format("rows '{}' and '{}' would share the directory '{}'; give "
                                      "them names that differ in letters or digits",
                                      other->second->label, run.row->label, run.directory));
      }
      TRI_ASSIGN(Progress progress, progress_of(run));
      if (run.row->step_only && is_recorded(run)) progress = Progress::kDone;
      progress_.push_back(progress);
      done_ += progress == Progress::kDone ? 1 : 0;
    }
    return {};
  }

  // Results that were lost come back from the files of their runs.
  Result<void> recover() {
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (progress_[i] == Progress::kDone && !is_recorded(runs_[i])) {
        TRI_TRY(results_.add(result_of(runs_[i], grid_, "")));
      }
    }
    return {};
  }

  bool is_recorded(const PlannedRun& run) const {
    const Json* const known = results_.find(*run.row, run.seed);
    const std::string status = known == nullptr ? "" : known->value("status", "");
    return status == "done" || status == "diverged";
  }

  std::string left_text() const {
    double seconds = 0;
    size_t left = 0, unknown = 0;
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (progress_[i] == Progress::kDone) continue;
      ++left;
      const auto expected = expected_seconds(runs_[i], grid_, results_);
      seconds += expected.value_or(0);
      unknown += expected ? 0 : 1;
    }
    if (left == 0) return "none left";
    if (unknown > 0) return fmt::format("{} left; the first will tell how long", left);
    return fmt::format("{} left, about {}", left, duration(seconds));
  }

  Result<void> make(size_t index) {
    const PlannedRun& run = runs_[index];
    TRI_ASSIGN(const auto arguments, arguments_of(run, grid_, options_, progress_[index]));
    say("\n[{}/{}] {}, {}, seed {}\n{}\n", index + 1, runs_.size(), run.row->block, run.row->label,
        run.seed, command_line(arguments));
    TRI_ASSIGN(const ChildEnd end, run_child(arguments));
    if (end.stop_signal != 0) {
      const bool by_user = end.stop_signal == SIGINT;
      return unexpected(by_user ? ErrorCode::kInterrupted : ErrorCode::kTerminated,
                        fmt::format("stopped by {} in run {} of {}; the same command continues",
                                    by_user ? "SIGINT" : "SIGTERM", index + 1, runs_.size()));
    }
    TRI_TRY(note(index, end, arguments));
    say("{}\n", left_text());
    return results_.write_markdown(grid_);
  }

  Result<void> note(size_t index, const ChildEnd& end, const std::vector<std::string>& arguments) {
    const PlannedRun& run = runs_[index];
    progress_[index] = Progress::kDone;  // for this call; the run's files decide about the next
    if (end.exit_code != 0 && end.exit_code != kDivergedCode && end.exit_code != kDoesNotFit) {
      ++failed_;
      say("the run failed with exit code {}\n", end.exit_code);
      return {};
    }
    Json result = result_of(run, grid_, end.output);
    if (end.exit_code == kDoesNotFit) result["status"] = "does not fit";
    result["command"] = command_line(arguments);
    return results_.add(std::move(result));
  }

  const Grid& grid_;
  const Options& options_;
  Results results_;
  std::vector<PlannedRun> runs_;
  std::vector<Progress> progress_;  // parallel to runs_
  size_t done_ = 0, failed_ = 0;
};

}  // namespace

Grid adjusted(Grid grid, const Options& options) {
  if (options.epochs) grid.epochs = *options.epochs;
  if (options.subset) grid.subset = options.subset;
  if (!options.seeds.empty()) grid.seeds = options.seeds;
  for (Row& row : grid.rows) {
    row.settings.insert(row.settings.end(), options.settings.begin(), options.settings.end());
  }
  return grid;
}

Result<std::vector<std::string>> commands_left(const Grid& grid, const Options& options) {
  return Runner(grid, options).commands();
}

Result<Results> run_grid(const Grid& grid, const Options& options) {
  return Runner(grid, options).run();
}

}  // namespace tri::experiment
