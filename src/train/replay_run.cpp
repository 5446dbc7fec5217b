#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "control/signal_replay.h"
#include "data/loader.h"
#include "train/ceiling.h"
#include "train/control_codec.h"
#include "train/engine_options.h"
#include "train/governing.h"
#include "train/run_directory.h"
#include "train/snapshot.h"
#include "train/step_pricing.h"
#include "tri/replay.h"

namespace tri {
namespace train {
namespace {

using Json = nlohmann::ordered_json;

struct Recorded {
  uint64_t epoch_samples = 0;
  std::vector<control::Record> records;
  std::vector<GovernorChange> changes;
};

void take(Recorded& recorded, const Json& event) {
  if (event.at("event") == "start") event.at("epoch_samples").get_to(recorded.epoch_samples);
  if (event.at("event") != "control") return;
  recorded.records.push_back({event.at("urgent").get<bool>(), read_signals(event.at("signals"))});
  for (const Json& change : event.at("changes")) {
    if (change.at("what") == "ceiling") continue;  // came from outside, and stands in the signals
    const auto text = [&](const char* key) { return change.at(key).get<std::string>(); };
    recorded.changes.push_back(
        {event.at("step").get<uint64_t>(), text("what"), text("from"), text("to"), text("reason")});
  }
}

Result<Recorded> read_metrics(const std::string& path) {
  std::ifstream file(path);
  Recorded recorded;
  size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    try {
      take(recorded, Json::parse(line));
    } catch (const Json::exception& exception) {
      return unexpected(ErrorCode::kFailed,
                        fmt::format("line {} of '{}' is not an event of this program ({}); use a "
                                    "run of this version",
                                    number, path, exception.what()));
    }
  }
  if (recorded.records.empty()) {
    return unexpected(ErrorCode::kInvalid,
                      fmt::format("'{}' records no decisions; give a run that has something to "
                                  "decide, such as one of --method triaccel that is longer than "
                                  "--control-every steps",
                                  path));
  }
  return recorded;
}

Result<void> check_layers(const Recorded& recorded, size_t layers, const std::string& path) {
  for (const control::Record& record : recorded.records) {
    const control::Signals& signals = record.signals;
    const bool whole = signals.layers.size() == layers &&
                       (signals.lambda.empty() || signals.lambda.size() == layers);
    if (whole) continue;
    return unexpected(ErrorCode::kFailed,
                      fmt::format("the decision at step {} in '{}' speaks of {} layers and the "
                                  "network has {}; the file is damaged",
                                  signals.step, path, signals.layers.size(), layers));
  }
  return {};
}

// What the governor decides by. Everything else has shaped the recorded signals, or has its say
// between decisions, and a replay could not honour it.
constexpr std::string_view kReplayed[] = {
    "precision", "assign-order", "assign-promote", "variance-rule", "beta",       "tau-low",
    "tau-high",  "tau-curv",     "alpha",          "batch-mode",    "batch-min",  "batch-max",
    "rho-low",   "rho-high",     "delta-up",       "delta-down",    "noise-scale"};

Result<Config> config_with(const RunDirectory& run, const Settings& changes) {
  ConfigBuilder builder;
  TRI_TRY(builder.read_file(run.config()));
  for (const auto& [key, text] : changes) {
    TRI_TRY(builder.set(key, text));
    if (std::ranges::find(kReplayed, key) != std::end(kReplayed)) continue;
    return unexpected(
        ErrorCode::kInvalid,
        fmt::format("a replay cannot follow '{}', because what was recorded would have been "
                    "otherwise; set one of {}, or train again",
                    key, fmt::join(kReplayed, ", ")));
  }
  TRI_ASSIGN(const ResolvedConfig resolved, builder.resolve());
  return resolved.config;
}

}  // namespace
}  // namespace train

Result<Replay> replay_run(const std::string& directory, const Settings& changes) {
  using namespace tri::train;
  TRI_ASSIGN(const RunDirectory run, find_run_directory(directory, "experiment replay"));
  TRI_ASSIGN(const Config config, config_with(run, changes));
  TRI_ASSIGN(const RunState state, read_snapshot_state(run.last()));
  TRI_ASSIGN(const Recorded recorded, read_metrics(run.metrics()));
  const ModelCard& card = state.card;
  TRI_ASSIGN(const auto model,
             model_of(config, {card.image, static_cast<int64_t>(card.class_names.size())}));
  TRI_ASSIGN(exec::EngineOptions options, engine_options(config, *model));
  options.step.kernels = card.kernels;
  TRI_ASSIGN(const auto engine, plan_engine(config, model, options));
  const control::Governor governor = make_governor(config, *model, recorded.epoch_samples);
  TRI_TRY(check_layers(recorded, governor.layers().size(), run.metrics()));
  TRI_ASSIGN(const uint64_t ceiling, ceiling_bytes(config.memory, memory::Probes()));
  data::SourceInfo images;
  images.shape = stored_shape(config, card.image);
  const StepPricing pricing(
      config, *engine,
      {state.base_bytes + pieces_bytes(engine->parameters()) + decode_bytes(config.data, ceiling),
       [&images](int64_t samples) {
         return data::Loader::ring_bytes(images, static_cast<size_t>(samples));
       }});
  const std::vector<control::Decision> decisions =
      control::replay(governor, recorded.records, pricing.prices());

  Replay replay;
  replay.recorded = recorded.changes;
  std::vector<int64_t> params;
  int64_t others = model->parameter_elements();
  for (const control::LayerFacts& layer : governor.layers()) {
    params.push_back(layer.params);
    others -= layer.params;
  }
  for (size_t i = 0; i < decisions.size(); ++i) {
    const control::Decision& decision = decisions[i];
    const uint64_t step = recorded.records[i].signals.step;
    for (const control::Change& change : decision.changes) {
      replay.replayed.push_back({step, change.what, change.from, change.to, change.reason});
    }
    const control::PrecisionShares shares = control::shares(decision.table, params, others);
    replay.points.push_back({step, decision.batch, decision.micros, decision.loss_scale,
                             shares.fp32, shares.bf16, shares.fp16, shares.fp8,
                             decision.step_factors});
  }
  return replay;
}

}  // namespace tri
