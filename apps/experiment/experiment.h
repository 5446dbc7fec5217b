#pragma once
// apps/experiment. Runs a grid to its end, however often it is stopped. In: a grid and where files
// go. Out: a directory per run, results, and on the screen what is left and how long it will take.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "experiment/grid.h"
#include "experiment/results.h"
#include "tri/result.h"

namespace tri::experiment {

struct Options {
  std::optional<int64_t> epochs = {}, subset = {};  // none: the grid's own
  std::vector<int64_t> seeds = {};                  // empty: the grid's own
  Settings settings = {};                           // for every run, stronger than the rows'
  std::string only = {};                            // only rows whose name holds this
  std::string runs = "runs";                        // RUNS/NAME/ROW-SEED
  std::string out = {};  // folder of results; empty: docs/results or results
  size_t threads = 0;    // 0: all
  bool dry_run = false;  // only print the commands
  bool quiet = false;
};

// The grid with what the options change.
Grid adjusted(Grid grid, const Options& options);

// Runs what is not done yet. kInterrupted or kTerminated where a signal stopped it: the same call
// continues. kFailed at the end if a run could not be made; the others were.
Result<Results> run_grid(const Grid& grid, const Options& options);

// Rates for every method, then thresholds for Tri-Accel, judged on a held-out part; prints the best
// of each as TOML and writes it to tune-METHOD.toml.
Result<void> tune(const DataSpecs& data, const Options& options);

}  // namespace tri::experiment
