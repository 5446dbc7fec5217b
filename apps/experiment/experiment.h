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
  bool quiet = false;
};

// The grid with what the options change. What takes a grid takes one like this.
Grid adjusted(Grid grid, const Options& options);

// The commands of what is not done yet, as a user would type them. Runs nothing.
Result<std::vector<std::string>> commands_left(const Grid& grid, const Options& options);

// Runs what is not done yet. kInterrupted or kTerminated where a signal stopped it: the same call
// continues. kFailed at the end if a run could not be made; the others were.
Result<Results> run_grid(const Grid& grid, const Options& options);

// The best of a method, judged on a held-out part of the training set.
struct Tuned {
  std::string method;
  double accuracy = 0;  // of the held-out part, mean over seeds
  Settings settings;    // only what was tuned
};
// As a file that train --config reads.
std::string to_toml(const Tuned& tuned);

// Rates for every method, then thresholds for Tri-Accel; writes each to tune-METHOD.toml.
Result<std::vector<Tuned>> tune(const DataSpecs& data, const Options& options);

}  // namespace tri::experiment
