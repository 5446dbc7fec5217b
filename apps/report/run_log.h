#pragma once
// apps/report. All that a page shows of one run. In: the files of its directory, of which any may
// be missing, torn or still growing. Out: curves, grids and lists of bounded size.
#include <cstddef>
#include <cstdint>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/layer_grid.h"
#include "report/thinned.h"
#include "tri/result.h"

namespace tri::report {

using Json = nlohmann::ordered_json;

// Nothing where `key` is missing or no number.
std::optional<double> number(const Json& object, const char* key);

// One line of config.toml.
struct ConfigLine {
  std::string group, key, value;
  std::string origin;  // who set it; empty where the file does not say
};

// A change that the control loop made, or a warning (then only `reason` is filled).
struct Decision {
  uint64_t step = 0;
  double epoch = 0;
  std::string what, from, to, reason;
};

// Formats of a layer as LayerGrid values, most precise first.
inline constexpr std::string_view kFormatNames[] = {"fp32",      "bf16",      "fp16", "fp16 1-6-9",
                                                    "fp8 1-4-3", "fp8 1-5-2", "other"};
size_t format_index(std::string_view name);

struct RunLog {
  std::string directory;
  std::string name;  // the directory's own name
  Json summary = Json::object();
  std::vector<ConfigLine> config;

  // Over epochs; parts of an epoch where there is more than one value in it.
  Thinned step_loss{Keep::kMean}, train_loss, val_loss, test_loss;
  Thinned train_accuracy, val_accuracy, test_accuracy;
  Thinned epoch_seconds, epoch_peak, epoch_score;
  Thinned throughput{Keep::kMean}, learning_rate;
  // Over steps.
  Thinned batch, noise_scale;
  LayerGrid precision, curvature, step_size;
  // Over seconds.
  Thinned planned_bytes, measured_bytes, ceiling_bytes;

  std::deque<Decision> decisions;  // the first and the last of them
  uint64_t decision_count = 0, decisions_left_out = 0;
  uint64_t last_step = 0, last_samples = 0;
  double last_seconds = 0;
  uint64_t unreadable_lines = 0;
  std::string end_reason;
};

// kInvalid if the directory has neither a summary nor metrics.
Result<RunLog> read_run(const std::string& directory);

}  // namespace tri::report
