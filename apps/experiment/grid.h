#pragma once
// apps/experiment. What an experiment is: rows of a table, each a configuration that is run once
// per seed. Pure data; published_tables.cpp has the papers', grid files have anyone's.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tri/result.h"

namespace tri::experiment {

using Settings = std::vector<std::pair<std::string, std::string>>;  // option and text

// What a paper printed for a row.
struct Published {
  std::optional<double> accuracy = {};  // %
  std::optional<double> seconds = {};   // of an epoch
  std::optional<double> gigabytes = {};
};

struct Row {
  std::string block;  // rows of one block are compared with its first
  std::string label;
  Settings settings;
  // Above 0: --memory leaves the engine this share of what the block's first row plans for.
  double engine_share = 0;
  bool step_only = false;  // time and peak of `bench step`, no training
  Published published = {};
};

struct Grid {
  std::string name;          // of its folder and files
  std::string command = {};  // what `experiment` calls it, if not by its name
  std::string title;         // heading of its table
  std::vector<Row> rows;
  std::vector<int64_t> seeds = {0};
  int64_t epochs = 15;
  std::optional<int64_t> subset = {};  // images to learn from
};

// "CIFAR-10, resnet18" and "+ dynamic batch" -> "cifar-10-resnet18-dynamic-batch".
std::string slug(std::string_view text);

// Of a value of --data: a published set is the same wherever its files lie.
std::string data_identity(const std::string& data);

// The papers' tables and `tune`, by name; nothing for another name. `data` is the value of --data
// for a data set's name.
struct DataSpecs {
  std::string cifar10, cifar100;
};
std::vector<std::string_view> published_names();
std::optional<Grid> published_grid(std::string_view name, const DataSpecs& data);

// The grid that a TOML file describes; docs/experiments.md has the format.
Result<Grid> grid_from_file(const std::string& path);

// Rows of `tune`: rates for every method, and thresholds of Tri-Accel around its best rates.
Grid rate_grid(const DataSpecs& data);
Grid threshold_grid(const DataSpecs& data, const Settings& best_rates);

}  // namespace tri::experiment
