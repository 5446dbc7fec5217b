#pragma once
// Door of room train: a file that describes many runs. In: TOML (docs/experiments.md). Out: what it
// says, each option checked as the command line would. Combines and runs nothing.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tri/result.h"

namespace tri {

struct GridFile {
  using Settings = std::vector<std::pair<std::string, std::string>>;  // option and text

  struct Variant {
    std::string name;
    Settings settings;
  };
  struct Axis {
    std::string key;
    std::vector<std::string> values;
  };

  std::string title;  // empty: not given
  std::vector<int64_t> seeds;
  std::optional<int64_t> epochs;
  Settings common;                // [set]: of every run
  std::vector<Axis> axes;         // [vary]: every combination is a run of each variant
  std::vector<Variant> variants;  // [[run]]
};

// Every refusal is kInvalid and names the line.
Result<GridFile> read_grid_file(const std::string& path);
Result<GridFile> parse_grid(std::string_view text, const std::string& name);

}  // namespace tri
