#include "report/layer_grid.h"

namespace tri::report {

void LayerGrid::put(const std::string& layer, uint64_t step, float value) {
  if (!std::isfinite(value)) return;
  while (step / steps_per_column_ >= kColumns) widen();
  auto found = rows_.find(layer);
  if (found == rows_.end()) {
    if (names_.size() == kMostLayers) return;
    found = rows_.emplace(layer, names_.size()).first;
    names_.push_back(layer);
    cells_.resize(names_.size() * kColumns, kNone);
  }
  cells_[found->second * kColumns + static_cast<size_t>(step / steps_per_column_)] = value;
}

void LayerGrid::widen() {
  steps_per_column_ *= 2;
  for (size_t row = 0; row < names_.size(); ++row) {
    float* const cells = &cells_[row * kColumns];
    for (size_t column = 0; column < kColumns; ++column) {
      const size_t from = 2 * column;
      if (from >= kColumns) {
        cells[column] = kNone;
      } else {
        cells[column] = std::isnan(cells[from + 1]) ? cells[from] : cells[from + 1];
      }
    }
  }
}

}  // namespace tri::report
