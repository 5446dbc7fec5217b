#include "experiment/results.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

namespace tri::experiment {
namespace {

std::string key_of(std::string_view block, std::string_view row, int64_t seed) {
  return fmt::format("{}\n{}\n{}", block, row, seed);
}

std::optional<std::string> key_of(const Json& result) {
  const auto text = [&](const char* key) {
    return result.contains(key) && result[key].is_string();
  };
  if (!result.is_object() || !text("block") || !text("row") || !result.contains("seed") ||
      !result["seed"].is_number_integer()) {
    return std::nullopt;
  }
  return key_of(result["block"].get<std::string>(), result["row"].get<std::string>(),
                result["seed"].get<int64_t>());
}

Unexpected refused(const std::string& path) {
  return unexpected(ErrorCode::kFailed,
                    fmt::format("cannot write the results '{}': {}; check the path, its "
                                "permissions and the free space",
                                path, std::strerror(errno)));
}

Result<void> write_text(const std::string& path, const char* mode, const std::string& text) {
  std::FILE* const file = std::fopen(path.c_str(), mode);
  if (file == nullptr) return refused(path);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !written) return refused(path);
  return {};
}

std::string shown(const Spread& spread, int decimals) {
  if (spread.count == 0) return "-";
  if (spread.count == 1) return fmt::format("{:.{}f}", spread.mean, decimals);
  return fmt::format("{:.{}f} +- {:.{}f}", spread.mean, decimals, spread.deviation, decimals);
}

std::string shown(const std::optional<double>& value, int decimals) {
  return value ? fmt::format("{:.{}f}", *value, decimals) : "-";
}

std::vector<double> scaled(std::vector<double> values, double factor) {
  for (double& value : values) value *= factor;
  return values;
}

// What happened to runs that brought no numbers, and what paper (c) counts.
std::string remark(const Grid& grid, const Results& results, const Row& row) {
  std::string text;
  for (const int64_t seed : grid.seeds) {
    const Json* const result = results.find(row, seed);
    if (result == nullptr) continue;
    const std::string status = result->value("status", "");
    if (status != "done" && text.find(status) == std::string::npos) {
      text += (text.empty() ? "" : ", ") + status;
    }
  }
  const auto add = [&](const std::string& words) { text += (text.empty() ? "" : ", ") + words; };
  const Spread low = spread_of(results.values(row, "low_ratio"));
  if (low.count > 0) add(fmt::format("low ratio {:.2f}", low.mean));
  const Spread lost = spread_of(results.values(row, "skipped_steps"));
  if (lost.mean > 0) {
    const std::string count = fmt::format("{:.0f}", lost.mean);
    add(count + (count == "1" ? " step lost" : " steps lost"));
  }
  return text;
}

bool has_published(const Grid& grid) {
  return std::ranges::any_of(grid.rows, [](const Row& row) {
    return row.published.accuracy || row.published.seconds || row.published.gigabytes;
  });
}

// Columns that not every table has.
struct Columns {
  bool held_out;  // accuracy on a part of the training set that was not trained on
  bool published;
};

Columns columns_of(const Grid& grid, const Results& results) {
  const bool held_out = std::ranges::any_of(grid.rows, [&results](const Row& row) {
    return !results.values(row, "val_accuracy").empty();
  });
  return {held_out, has_published(grid)};
}

void put_line(std::string& text, const Grid& grid, const Results& results, const Row& row,
              const Row& first, const Columns& columns) {
  const auto of = [&](const char* key) { return results.values(row, key); };
  const Spread accuracy = spread_of(scaled(of("test_accuracy"), 100));
  const Spread peak = spread_of(scaled(of("engine_peak_bytes"), 1e-6));
  const Spread first_peak = spread_of(scaled(results.values(first, "engine_peak_bytes"), 1e-6));
  const bool compared = peak.count > 0 && first_peak.count > 0 && first_peak.mean > 0;
  text += fmt::format("| {} | {} |", row.label, std::max({accuracy.count, peak.count}));
  if (columns.held_out)
    text += fmt::format(" {} |", shown(spread_of(scaled(of("val_accuracy"), 100)), 2));
  text += fmt::format(" {} | {} | {} | {} | {} |", shown(accuracy, 2),
                      shown(spread_of(of("epoch_seconds")), 1), shown(peak, 1),
                      compared ? fmt::format("{:.1f} %", 100 * peak.mean / first_peak.mean) : "-",
                      shown(spread_of(of("score")), 2));
  if (columns.published) {
    const Published& paper = row.published;
    std::optional<double> score, share;
    if (paper.accuracy && paper.seconds && paper.gigabytes) {
      score = *paper.accuracy / (*paper.seconds * *paper.gigabytes);
    }
    if (paper.gigabytes && first.published.gigabytes) {
      share = 100 * *paper.gigabytes / *first.published.gigabytes;
    }
    text += fmt::format(" {} | {} | {} | {} | {} |", shown(paper.accuracy, 1),
                        shown(paper.seconds, 1), shown(paper.gigabytes, 3),
                        share ? shown(share, 1) + " %" : "-", shown(score, 2));
  }
  text += fmt::format(" {} |\n", remark(grid, results, row));
}

}  // namespace

Spread spread_of(const std::vector<double>& values) {
  Spread spread{.count = values.size()};
  if (values.empty()) return spread;
  const auto count = static_cast<double>(values.size());
  for (const double value : values) spread.mean += value / count;
  double squares = 0;
  for (const double value : values) squares += (value - spread.mean) * (value - spread.mean);
  if (values.size() > 1) spread.deviation = std::sqrt(squares / (count - 1));
  return spread;
}

Json training_of(const Grid& grid, const Row& row) {
  std::map<std::string, std::string> settings;  // in the order of keys, whoever gave them
  for (const auto& [key, text] : row.settings) settings[key] = text;
  for (const char* key : {"threads", "save-every"}) settings.erase(key);
  if (const auto data = settings.find("data"); data != settings.end()) {
    data->second = data_identity(data->second);
  }
  if (row.engine_share > 0) settings.emplace("memory", fmt::format("share {}", row.engine_share));
  return {{"epochs", grid.epochs},
          {"train_count", grid.subset ? Json(*grid.subset) : Json()},
          {"settings", settings}};
}

Results Results::read(const std::string& folder, const Grid& grid) {
  Results results;
  results.folder_ = folder;
  results.name_ = grid.name;
  std::ifstream file(results.jsonl_path());
  for (std::string line; std::getline(file, line);) {
    Json result = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    const auto key = key_of(result);
    if (!key) continue;
    const auto row = std::ranges::find_if(grid.rows, [&result](const Row& one) {
      return result["block"] == one.block && result["row"] == one.label;
    });
    if (row == grid.rows.end() || result.value("training", Json()) != training_of(grid, *row)) {
      continue;
    }
    results.rows_[*key] = std::move(result);
  }
  return results;
}

const Json* Results::find(const Row& row, int64_t seed) const {
  const auto found = rows_.find(key_of(row.block, row.label, seed));
  return found == rows_.end() ? nullptr : &found->second;
}

std::vector<double> Results::values(const Row& row, const char* key) const {
  std::vector<double> values;
  for (const auto& [unused, result] : rows_) {
    if (result["block"] != row.block || result["row"] != row.label) continue;
    if (result.value("status", "") != "done") continue;
    const auto found = result.find(key);
    if (found != result.end() && found->is_number()) values.push_back(found->get<double>());
  }
  return values;
}

Result<void> Results::add(Json result) {
  const auto key = key_of(result);
  if (!key || (rows_.contains(*key) && rows_[*key] == result)) return {};
  std::error_code ignored;
  std::filesystem::create_directories(folder_, ignored);
  TRI_TRY(write_text(jsonl_path(), "ab",
                     result.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"));
  rows_[*key] = std::move(result);
  return {};
}

Result<void> Results::write_markdown(const Grid& grid) const {
  std::error_code ignored;
  std::filesystem::create_directories(folder_, ignored);
  const std::string temporary = fmt::format("{}.tmp-{}", markdown_path(), ::getpid());
  // Another process may be at work on other rows of the same table.
  TRI_TRY(write_text(temporary, "wb", markdown(grid, read(folder_, grid))));
  if (std::rename(temporary.c_str(), markdown_path().c_str()) != 0) return refused(markdown_path());
  return {};
}

std::string markdown(const Grid& grid, const Results& results) {
  const Columns columns = columns_of(grid, results);
  std::string text = fmt::format("# {}\n\n", grid.title);
  text += fmt::format(
      "`triaccel experiment {}`; {} epochs, {}. Means over seeds, +- one standard "
      "deviation. Score = accuracy in % / (seconds per epoch x peak in GB).\n",
      grid.command.empty() ? grid.name : grid.command, grid.epochs,
      grid.subset ? fmt::format("{} training images", *grid.subset) : "all training images");
  std::string block;
  const Row* first = nullptr;
  for (const Row& row : grid.rows) {
    if (first == nullptr || row.block != block) {
      block = row.block;
      first = &row;
      text += fmt::format(
          "\n## {}\n\n| row | seeds |{} accuracy % | s per epoch | engine peak MB | "
          "of first row | score |",
          block, columns.held_out ? " held out % |" : "");
      if (columns.published) text += " paper: % | s | GB | of first row | score |";
      text += " remark |\n|---|--:|--:|--:|--:|--:|--:|";
      if (columns.held_out) text += "--:|";
      if (columns.published) text += "--:|--:|--:|--:|--:|";
      text += "---|\n";
    }
    put_line(text, grid, results, row, *first, columns);
  }
  return text;
}

}  // namespace tri::experiment
