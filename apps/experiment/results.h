#pragma once
// apps/experiment. What runs came to, kept in NAME.jsonl (a line per finished run, only appended)
// and shown in NAME.md (rewritten from it). Knows no process.
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "experiment/grid.h"
#include "tri/result.h"

namespace tri::experiment {

using Json = nlohmann::ordered_json;

// Mean and standard deviation (n - 1) of what is known of several seeds.
struct Spread {
  double mean = 0, deviation = 0;
  size_t count = 0;
};
Spread spread_of(const std::vector<double>& values);

class Results {
 public:
  // Reads what is there; passes over lines that are no result, or of other settings.
  static Results read(const std::string& folder, const Grid& grid);

  std::string jsonl_path() const { return folder_ + "/" + name_ + ".jsonl"; }
  std::string markdown_path() const { return folder_ + "/" + name_ + ".md"; }

  // The last result of a row and seed; null if there is none.
  const Json* find(const Row& row, int64_t seed) const;
  // Of all seeds that finished.
  std::vector<double> values(const Row& row, const char* key) const;

  // Appends a line. `result` must have block, row and seed. An equal line is not written twice.
  Result<void> add(Json result);

  Result<void> write_markdown(const Grid& grid) const;

 private:
  std::string folder_, name_;
  std::map<std::string, Json> rows_;  // by key_of()
};

// What results of a row must agree in: what `result["training"]` must be.
Json training_of(const Grid& grid, const Row& row);

// The table of a grid as Markdown.
std::string markdown(const Grid& grid, const Results& results);

}  // namespace tri::experiment
