// `triaccel experiment`: the papers' tables, tuning, or any grid of runs from a file.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command.h"
#include "experiment/experiment.h"
#include "experiment/replay_text.h"
#include "tri/config.h"

namespace tri::cli {
namespace {

namespace fs = std::filesystem;
using experiment::DataSpecs;
using experiment::Grid;
using experiment::Json;

struct ExperimentCommand {
  const SharedOptions& shared;
  std::string name = {}, run = {}, data_dir = "data", data = {};
  std::vector<std::string> pairs = {};
  experiment::Options options = {};
  int64_t epochs = 0, subset = 0;  // 0: not given
  bool dry_run = false;
};

Unexpected invalid(std::string message) {
  return unexpected(ErrorCode::kInvalid, std::move(message));
}

// DIR/cifar-10-batches-bin, as the archive unpacks, or DIR itself.
DataSpecs data_specs(const ExperimentCommand& command) {
  const auto spec = [&](std::string_view set, std::string_view folder) {
    std::error_code ignored;
    const fs::path inner = fs::path(command.data_dir) / folder;
    return fmt::format("{}:{}", set,
                       fs::is_directory(inner, ignored) ? inner.string() : command.data_dir);
  };
  return {spec("cifar10", "cifar-10-batches-bin"), spec("cifar100", "cifar-100-binary")};
}

// Checked before anything runs; each is given to every run.
Result<experiment::Settings> settings_of(const ExperimentCommand& command) {
  experiment::Settings settings;
  if (!command.data.empty()) settings.emplace_back("data", command.data);
  for (const std::string& pair : command.pairs) {
    const size_t equals = pair.find('=');
    if (equals == std::string::npos) {
      return invalid(fmt::format("--set '{}' has no '='; give key=value", pair));
    }
    settings.emplace_back(pair.substr(0, equals), pair.substr(equals + 1));
  }
  ConfigBuilder judge;
  for (const auto& [key, text] : settings) {
    const bool ours = key == "epochs" || key == "seed" || key == "out" || key == "train-count";
    if (ours) {
      return invalid(
          fmt::format("--set {} would be the same for every run; use --epochs, --seeds, "
                      "--runs or --subset",
                      key));
    }
    TRI_TRY(judge.set(key, text));
  }
  return settings;
}

Result<Grid> grid_of(const ExperimentCommand& command) {
  if (auto published = experiment::published_grid(command.name, data_specs(command))) {
    return *published;
  }
  std::error_code ignored;
  if (!command.name.ends_with(".toml") && !fs::exists(command.name, ignored)) {
    return invalid(
        fmt::format("there is no experiment '{}'; give {}, tune, replay or a grid file such as "
                    "grid.toml",
                    command.name, fmt::join(experiment::published_names(), ", ")));
  }
  return experiment::grid_from_file(command.name);
}

void print_json(const Json& json) {
  fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

void print_commands(const std::vector<std::string>& lines, bool json) {
  if (json) return print_json(lines);
  for (const std::string& line : lines) fmt::print("{}\n", line);
}

Result<void> tune(const ExperimentCommand& command) {
  const DataSpecs data = data_specs(command);
  if (command.dry_run) {
    const Grid rates = experiment::adjusted(experiment::rate_grid(data), command.options);
    TRI_ASSIGN(const auto lines, experiment::commands_left(rates, command.options));
    print_commands(lines, command.shared.json);
    return {};
  }
  TRI_ASSIGN(const auto found, experiment::tune(data, command.options));
  Json json = Json::object();
  for (const experiment::Tuned& best : found) {
    json[best.method] = {{"accuracy", best.accuracy}};
    for (const auto& [key, text] : best.settings) json[best.method][key] = Json::parse(text);
    if (!command.shared.json) fmt::print("{}\n", experiment::to_toml(best));
  }
  if (command.shared.json) print_json(json);
  return {};
}

Result<void> run(const ExperimentCommand& command) {
  TRI_ASSIGN(Grid grid, grid_of(command));
  grid = experiment::adjusted(std::move(grid), command.options);
  if (command.dry_run) {
    TRI_ASSIGN(const auto lines, experiment::commands_left(grid, command.options));
    print_commands(lines, command.shared.json);
    return {};
  }
  TRI_ASSIGN(const experiment::Results results, experiment::run_grid(grid, command.options));
  if (command.shared.json) {
    Json rows = Json::array();
    for (const experiment::Row& row : grid.rows) {
      for (const int64_t seed : grid.seeds) {
        if (const Json* const result = results.find(row, seed)) rows.push_back(*result);
      }
    }
    print_json(rows);
  } else if (!command.shared.quiet) {
    fmt::print("{}", experiment::markdown(grid, results));
  }
  return {};
}

Result<void> replay(const ExperimentCommand& command) {
  if (command.run.empty()) {
    return invalid("experiment replay needs the directory of a run; give 'experiment replay DIR'");
  }
  TRI_ASSIGN(const Replay replayed, replay_run(command.run, command.options.settings));
  if (command.shared.json) {
    print_json(experiment::to_json(replayed));
  } else {
    fmt::print("{}", experiment::to_text(replayed));
  }
  return {};
}

Result<void> work(ExperimentCommand& command) {
  experiment::Options& options = command.options;
  if (!command.shared.file.empty()) {
    return invalid(
        fmt::format("an experiment reads no --config {}; give --set key=value, or a grid "
                    "file with [set]",
                    command.shared.file));
  }
  options.quiet = command.shared.quiet;
  options.threads = command.shared.threads;
  if (command.epochs > 0) options.epochs = command.epochs;
  if (command.subset > 0) options.subset = command.subset;
  TRI_ASSIGN(options.settings, settings_of(command));
  if (command.name == "replay") return replay(command);
  if (!command.run.empty()) {
    return invalid(
        fmt::format("'{}' is one word too many; only replay takes a directory", command.run));
  }
  return command.name == "tune" ? tune(command) : run(command);
}

}  // namespace

Command experiment_command(CLI::App& program, const SharedOptions& shared) {
  CLI::App* parser = program.add_subcommand(
      "experiment", "Run a published table, tune, or run a grid; can be stopped and continued");
  auto command = std::make_shared<ExperimentCommand>(ExperimentCommand{shared});
  experiment::Options& options = command->options;
  parser
      ->add_option("NAME", command->name,
                   "table1, table2, optimizers, assignments, tune, replay, or a TOML file")
      ->required();
  parser->add_option("RUN", command->run,
                     "Of replay: what other settings would have decided in it");
  parser->add_option("--epochs", command->epochs, "Epochs of every run")
      ->check(CLI::Range(1, 1000000));
  parser->add_option("--subset", command->subset, "Training images of every run (default: all)")
      ->check(CLI::Range(1, 1000000000));
  parser->add_option("--seeds,--seed", options.seeds, "Seeds, apart by commas")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 53));
  parser->add_option("--only", options.only, "Only rows whose name holds this, such as resnet-18");
  parser->add_option("--data-dir", command->data_dir, "Where the CIFAR folders are")
      ->type_name("DIR");
  parser->add_option("--data", command->data, "Other data for every run, as train takes it");
  add_set_option(*parser, command->pairs, "Another option of every run; may be repeated");
  parser->add_option("--runs", options.runs, "Where the runs' directories go")->type_name("DIR");
  parser
      ->add_option("--out", options.out,
                   "Where results go; default: docs/results if there is one, else results")
      ->type_name("DIR");
  parser->add_flag("--dry-run", command->dry_run,
                   "Print the commands of what is left, run nothing");
  return {parser, [command] { return work(*command); }};
}

}  // namespace tri::cli
