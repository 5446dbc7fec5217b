#pragma once
// apps/report. One value per layer and time in bounded memory. In: changes, in the order of steps.
// Out: a grid whose columns cover equal numbers of steps, so many that the whole run fits.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

namespace tri::report {

class LayerGrid {
 public:
  static constexpr size_t kColumns = 128;
  static constexpr size_t kMostLayers = 1024;  // more are ignored: no page could show them

  // From `step` on the layer has this value. Of two in one column the later one counts.
  void put(const std::string& layer, uint64_t step, float value);

  size_t rows() const { return names_.size(); }
  const std::string& name(size_t row) const { return names_[row]; }
  uint64_t steps_per_column() const { return steps_per_column_; }

  // What was put there; NaN where the layer did not change.
  float at(size_t row, size_t column) const { return cells_[row * kColumns + column]; }

 private:
  static constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

  void widen();

  std::vector<std::string> names_;  // in the order of their first change
  std::unordered_map<std::string, size_t> rows_;
  std::vector<float> cells_;  // (row, column)
  uint64_t steps_per_column_ = 1;
};

}  // namespace tri::report
