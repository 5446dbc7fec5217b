#include "experiment/planned_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "experiment/child.h"
#include "tri/plan.h"

namespace tri::experiment {
namespace {
namespace fs = std::filesystem;

constexpr double kCifarImages = 50'000;  // of an epoch, for rows that only time steps

Result<ResolvedConfig> resolve(const Settings& settings) {
  ConfigBuilder builder;
  TRI_TRY(builder.read_environment());
  for (const auto& [key, text] : settings) TRI_TRY(builder.set(key, text));
  return builder.resolve();
}

bool has(const Settings& settings, std::string_view key) {
  return std::ranges::any_of(settings, [key](const auto& one) { return one.first == key; });
}

bool computes_ceiling(const PlannedRun& run) {
  return run.row->engine_share > 0 && !has(run.settings, "memory");
}

// Without what may differ between two parts of one run.
Config comparable(const PlannedRun& run, Config config) {
  if (computes_ceiling(run)) config.memory = "auto";
  config.threads.reset();
  config.out.clear();
  config.save_every = {};
  config.data = data_identity(config.data);
  return config;
}

std::string first_difference(const Config& there, const Config& wanted) {
  const Json before = Json::parse(to_json(there)), now = Json::parse(to_json(wanted));
  for (const auto& [key, value] : before.items()) {
    if (value != now[key]) {
      return fmt::format("{} is {} there and {} here", key, value.dump(), now[key].dump());
    }
  }
  return "they differ in less than is shown";
}

Json read_json(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json : Json::object();
}

// The last event of its kind; events of ends and epochs are small and near the end of the file.
Json last_event(const std::string& metrics, std::string_view kind) {
  constexpr std::streamoff kTail = 1 << 18;
  std::ifstream file(metrics, std::ios::binary);
  file.seekg(0, std::ios::end);
  const std::streamoff size = file.tellg();
  file.seekg(std::max<std::streamoff>(0, size - kTail));
  Json last = Json::object();
  const std::string mark = fmt::format("{{\"event\":\"{}\"", kind);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(mark)) continue;
    Json event = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (event.is_object()) last = std::move(event);
  }
  return last;
}

// --memory in bytes: the share of what the block's first row plans for the engine in fp32, and what
// that row's process holds besides.
Result<std::string> ceiling_of(const PlannedRun& run, const Grid& grid, const Options& options) {
  Settings first = std::ranges::find(grid.rows, run.row->block, &Row::block)->settings;
  first.emplace_back("method", "fp32");
  if (options.threads > 0) first.emplace_back("threads", fmt::format("{}", options.threads));
  TRI_ASSIGN(const ResolvedConfig resolved, resolve(first));
  TRI_ASSIGN(const MemoryPlan plan, plan_memory(resolved));
  const double engine = run.row->engine_share * static_cast<double>(plan.engine_peak_bytes);
  const uint64_t beside = plan.process_peak_bytes - plan.engine_peak_bytes;
  return fmt::format("{}", static_cast<uint64_t>(engine) + beside);
}

void append(std::vector<std::string>& arguments, const Settings& settings) {
  for (size_t i = 0; i < settings.size(); ++i) {
    const auto& [key, text] = settings[i];
    const bool again = std::any_of(settings.begin() + static_cast<ptrdiff_t>(i) + 1, settings.end(),
                                   [&key = key](const auto& later) { return later.first == key; });
    if (again) continue;
    const auto options = config_options();
    const auto found = std::ranges::find(options, key, &ConfigOption::key);
    if (found != options.end() && found->syntax.empty()) {  // a flag takes no value
      arguments.insert(arguments.end(), {"--set", key + "=" + text});
    } else {
      arguments.insert(arguments.end(), {"--" + key, text});
    }
  }
}

}  // namespace

std::vector<PlannedRun> planned_runs(const Grid& grid, const Options& options) {
  std::vector<PlannedRun> runs;
  for (const int64_t seed : grid.seeds) {
    for (const Row& row : grid.rows) {
      if (row.step_only && seed != grid.seeds.front()) continue;
      const std::string name = slug(row.block + " " + row.label);
      if (name.find(options.only) == std::string::npos) continue;
      PlannedRun run{&row, seed, fmt::format("{}-{}", name, seed), "", row.settings};
      run.directory = fmt::format("{}/{}/{}", options.runs, grid.name, run.name);
      run.settings.emplace_back("seed", fmt::format("{}", seed));
      if (!row.step_only) {
        run.settings.emplace_back("epochs", fmt::format("{}", grid.epochs));
        if (grid.subset) run.settings.emplace_back("train-count", fmt::format("{}", *grid.subset));
      }
      runs.push_back(std::move(run));
    }
  }
  return runs;
}

Result<Progress> progress_of(const PlannedRun& run) {
  std::error_code ignored;
  const std::string config = run.directory + "/config.toml";
  if (run.row->step_only || !fs::exists(config, ignored)) return Progress::kNone;
  ConfigBuilder saved;
  TRI_TRY(saved.read_file(config));
  TRI_ASSIGN(const ResolvedConfig before, saved.resolve());
  TRI_ASSIGN(const ResolvedConfig wanted, resolve(run.settings));
  const Config there = comparable(run, before.config), here = comparable(run, wanted.config);
  if (there != here) {
    return unexpected(ErrorCode::kInvalid,
                      fmt::format("'{}' is a run with other options ({}); give another --runs, or "
                                  "remove it",
                                  run.directory, first_difference(there, here)));
  }
  const std::string status = read_json(run.directory + "/summary.json").value("status", "");
  if (status == "done" || status == "diverged") return Progress::kDone;
  const bool saved_once = fs::exists(run.directory + "/checkpoints/last", ignored);
  return saved_once ? Progress::kStarted : Progress::kNone;
}

Result<std::vector<std::string>> arguments_of(const PlannedRun& run, const Grid& grid,
                                              const Options& options, Progress progress) {
  std::vector<std::string> arguments;
  if (run.row->step_only) {
    arguments = {"bench", "step", "--json", "--steps", "3"};
    append(arguments, run.settings);
  } else if (progress == Progress::kStarted) {
    arguments = {"train", "--json", "--resume", run.directory};
  } else {
    arguments = {"train", "--json"};
    Settings settings = run.settings;
    if (computes_ceiling(run)) {
      TRI_ASSIGN(std::string memory, ceiling_of(run, grid, options));
      settings.emplace_back("memory", std::move(memory));
    }
    append(arguments, settings);
    arguments.insert(arguments.end(), {"--out", run.directory});
  }
  if (options.quiet && !run.row->step_only) arguments.emplace_back("--quiet");
  if (options.threads > 0) {
    arguments.insert(arguments.end(), {"--threads", fmt::format("{}", options.threads)});
  }
  return arguments;
}

Json result_of(const PlannedRun& run, const Grid& grid, const std::string& output) {
  Json result = {{"experiment", grid.name},
                 {"block", run.row->block},
                 {"row", run.row->label},
                 {"seed", run.seed},
                 {"training", training_of(grid, *run.row)}};
  if (run.row->step_only) {
    const Json bench = Json::parse(output, nullptr, /*allow_exceptions=*/false);
    const bool timed = bench.is_object() && bench.contains("images_per_second");
    result["status"] = timed ? "done" : "failed";
    if (timed) {
      result["epoch_seconds"] = kCifarImages / bench["images_per_second"].get<double>();
      result["engine_peak_bytes"] = bench["engine_peak_bytes"];
      result["process_peak_bytes"] = bench["process_peak_bytes"];
    }
    return result;
  }
  const Json summary = read_json(run.directory + "/summary.json");
  for (const char* const key :
       {"status", "epochs", "steps", "params", "test_accuracy", "best_test_accuracy", "train_loss",
        "epoch_seconds", "images_per_second", "engine_peak_bytes", "process_peak_bytes",
        "ceiling_bytes", "score", "batch", "precision", "control_seconds", "decisions",
        "skipped_steps", "low_ratio"}) {
    result[key] = summary.contains(key) ? summary[key] : Json();
  }
  const Json epoch = last_event(run.directory + "/metrics.jsonl", "epoch");
  if (epoch.contains("val_accuracy")) result["val_accuracy"] = epoch["val_accuracy"];
  result["wall_seconds"] =
      last_event(run.directory + "/metrics.jsonl", "end").value("seconds", 0.0);
  return result;
}

}  // namespace tri::experiment
