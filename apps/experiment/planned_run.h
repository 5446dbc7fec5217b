#pragma once
// apps/experiment. One run of a grid: where it lives, how far it is, which command makes it.
#include <cstdint>
#include <string>
#include <vector>

#include "experiment/experiment.h"
#include "experiment/grid.h"
#include "experiment/results.h"
#include "tri/config.h"
#include "tri/result.h"

namespace tri::experiment {

struct PlannedRun {
  const Row* row = nullptr;
  int64_t seed = 0;
  std::string name;       // of its directory
  std::string directory;  // RUNS/GRID/NAME
  Settings settings;      // the row's, the options', the seed; the last of a key counts
};

enum class Progress { kNone, kStarted, kDone };

// Every row and seed; seeds outermost, so that a table fills evenly.
std::vector<PlannedRun> planned_runs(const Grid& grid, const Options& options);

// What the run's files say. kInvalid where they are of a run with other options.
Result<Progress> progress_of(const PlannedRun& run);

// The arguments of the process that starts or continues the run. Plans the ceiling where the row
// asks for one.
Result<std::vector<std::string>> arguments_of(const PlannedRun& run, const Grid& grid,
                                              const Options& options, Progress progress);

// A line of results from the files of a run, or from what `bench step` printed.
Json result_of(const PlannedRun& run, const Grid& grid, const std::string& output);

}  // namespace tri::experiment
