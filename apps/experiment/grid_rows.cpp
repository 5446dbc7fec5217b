// A grid from a file: every variant with every combination of the axes.
#include <fmt/format.h>

#include <filesystem>

#include "experiment/grid.h"
#include "tri/grid_file.h"

namespace tri::experiment {
namespace {

// Number `index` of all combinations; the last axis turns fastest.
Row combined(Row row, const std::vector<GridFile::Axis>& axes, size_t index) {
  Settings chosen;
  for (size_t i = axes.size(); i-- > 0;) {
    const GridFile::Axis& axis = axes[i];
    chosen.insert(chosen.begin(), {axis.key, axis.values[index % axis.values.size()]});
    index /= axis.values.size();
  }
  for (const auto& [key, text] : chosen) {
    row.label += fmt::format("{}{} {}", row.label.empty() ? "" : ", ", key, text);
    row.settings.emplace_back(key, text);
  }
  return row;
}

}  // namespace

Result<Grid> grid_from_file(const std::string& path) {
  TRI_ASSIGN(GridFile file, read_grid_file(path));
  constexpr size_t kMostRows = 10'000;
  Grid grid;
  grid.name = slug(std::filesystem::path(path).stem().string());
  grid.title = file.title.empty() ? grid.name : file.title;
  if (!file.seeds.empty()) grid.seeds = file.seeds;
  if (file.epochs) grid.epochs = *file.epochs;
  if (file.variants.empty()) file.variants.push_back({file.axes.empty() ? "run" : "", {}});
  size_t combinations = 1;
  for (const GridFile::Axis& axis : file.axes) {
    combinations *= axis.values.size();
    if (combinations * file.variants.size() > kMostRows) {
      return unexpected(
          ErrorCode::kInvalid,
          fmt::format("'{}' asks for more than {} runs; vary less at once", path, kMostRows));
    }
  }
  for (const GridFile::Variant& variant : file.variants) {
    Row row{.block = "runs", .label = variant.name, .settings = file.common};
    row.settings.insert(row.settings.end(), variant.settings.begin(), variant.settings.end());
    for (size_t i = 0; i < combinations; ++i) {
      grid.rows.push_back(combined(row, file.axes, i));
    }
  }
  return grid;
}

}  // namespace tri::experiment
