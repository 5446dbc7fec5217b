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
      if (key != tuned_key) continue;
      std::erase_if(found, [&key = key](const auto& earlier) { return earlier.first == key; });
      found.emplace_back(key, text);
    }
  }
  return found;
}

Result<void> write_best(const Tuned& best, const std::string& folder) {
  const std::string path = fmt::format("{}/tune-{}.toml", folder, best.method);
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  const bool written = file != nullptr && std::fputs(to_toml(best).c_str(), file) >= 0;
  if (file == nullptr || std::fclose(file) != 0 || !written) {
    return unexpected(ErrorCode::kFailed,
                      fmt::format("cannot write '{}'; check the path and the free space", path));
  }
  return {};
}

}  // namespace

std::string to_toml(const Tuned& best) {
  std::string text = fmt::format("# {}: {:.2f} % of the held-out part\nmethod = \"{}\"\n",
                                 best.method, 100 * best.accuracy, best.method);
  for (const auto& [key, value] : best.settings) text += fmt::format("{} = {}\n", key, value);
  return text;
}

Result<std::vector<Tuned>> tune(const DataSpecs& data, const Options& options) {
  const Grid rates = adjusted(rate_grid(data), options);
  TRI_ASSIGN(const Results rated, run_grid(rates, options));
  std::vector<Tuned> found;
  for (const std::string method : {"fp32", "amp", "triaccel"}) {
    const Best best = best_of(rates, rated, method);
    if (best.row != nullptr) found.push_back({method, best.accuracy, tuned(*best.row)});
  }
  if (!found.empty() && found.back().method == "triaccel") {
    const Grid thresholds = adjusted(threshold_grid(data, found.back().settings), options);
    Options all_rows = options;
    all_rows.only.clear();
    TRI_ASSIGN(const Results judged, run_grid(thresholds, all_rows));
    const Best best = best_of(thresholds, judged, "triaccel");
    if (best.row != nullptr) found.back() = {"triaccel", best.accuracy, tuned(*best.row)};
  }
  const std::string folder = rated.jsonl_path().substr(0, rated.jsonl_path().rfind('/'));
  for (const Tuned& best : found) TRI_TRY(write_best(best, folder));
  return found;
}

}  // namespace tri::experiment
