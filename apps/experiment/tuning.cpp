// `experiment tune`: which rates, and for Tri-Accel which thresholds, do best on a held-out part.
#include <fmt/format.h>

#include <cstdio>

#include "experiment/experiment.h"

namespace tri::experiment {
namespace {

struct Best {
  const Row* row = nullptr;
  double accuracy = -1;  // on the held-out part, mean over seeds
};

Best best_of(const Grid& grid, const Results& results, std::string_view block) {
  Best best;
  for (const Row& row : grid.rows) {
    if (row.block != block) continue;
    const Spread judged = spread_of(results.values(row, "val_accuracy"));
    if (judged.count > 0 && judged.mean > best.accuracy) best = {&row, judged.mean};
  }
  return best;
}

// What was tuned, of all that a row sets.
Settings tuned(const Row& row) {
  Settings found;
  for (const auto& [key, text] : row.settings) {
    for (const std::string_view tuned_key : {"lr", "weight-decay", "tau-low", "tau-high"}) {
      if (key == tuned_key) found.emplace_back(key, text);
    }
  }
  return found;
}

Result<void> print_best(const std::string& method, const Best& best, const std::string& folder) {
  std::string text = fmt::format("# {}: {:.2f} % of the held-out part\nmethod = \"{}\"\n", method,
                                 100 * best.accuracy, method);
  for (const auto& [key, value] : tuned(*best.row)) text += fmt::format("{} = {}\n", key, value);
  fmt::print("{}\n", text);
  const std::string path = fmt::format("{}/tune-{}.toml", folder, method);
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  const bool written = file != nullptr && std::fputs(text.c_str(), file) >= 0;
  if (file == nullptr || std::fclose(file) != 0 || !written) {
    return unexpected(ErrorCode::kFailed,
                      fmt::format("cannot write '{}'; check the path and the free space", path));
  }
  return {};
}

}  // namespace

Result<void> tune(const DataSpecs& data, const Options& options) {
  const Grid rates = adjusted(rate_grid(data), options);
  TRI_ASSIGN(const Results rated, run_grid(rates, options));
  const Best triaccel = best_of(rates, rated, "triaccel");
  if (options.dry_run) {
    fmt::print("# then the thresholds of Tri-Accel, at its best rates\n");
    return {};
  }
  const std::string folder = rated.jsonl_path().substr(0, rated.jsonl_path().rfind('/'));
  for (const std::string method : {"fp32", "amp"}) {
    if (const Best best = best_of(rates, rated, method); best.row != nullptr) {
      TRI_TRY(print_best(method, best, folder));
    }
  }
  if (triaccel.row == nullptr) return {};
  const Grid thresholds = adjusted(threshold_grid(data, tuned(*triaccel.row)), options);
  TRI_ASSIGN(const Results judged, run_grid(thresholds, options));
  const Best best = best_of(thresholds, judged, "triaccel");
  return best.row == nullptr ? Result<void>() : print_best("triaccel", best, folder);
}

}  // namespace tri::experiment
