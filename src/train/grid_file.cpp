#include "tri/grid_file.h"

#include <fmt/format.h>

#include <string_view>

#include "train/invalid.h"
#include "train/replace_file.h"
#include "train/toml_parser.h"
#include "tri/config.h"

namespace tri {
namespace {

constexpr size_t kMostGridBytes = size_t{1} << 20;

class GridReader {
 public:
  explicit GridReader(const std::string& name) : name_(name) {}

  Result<GridFile> read(const toml::table& file) {
    for (const auto& [key, node] : file) {
      if (key == "title" && node.is_string()) {
        grid_.title = node.as_string()->get();
      } else if (key == "epochs" && node.is_integer()) {
        grid_.epochs = node.as_integer()->get();
        if (*grid_.epochs < 1) {
          return invalid(
              fmt::format("{}: epochs is {}; give at least 1", line_of(key), *grid_.epochs));
        }
      } else if (key == "seeds" && node.is_array()) {
        TRI_TRY(read_seeds(*node.as_array()));
      } else if (key == "set" && node.is_table()) {
        TRI_ASSIGN(grid_.common, read_settings(*node.as_table()));
      } else if (key == "vary" && node.is_table()) {
        TRI_TRY(read_axes(*node.as_table()));
      } else if (key == "run" && node.is_array_of_tables()) {
        for (const toml::node& run : *node.as_array()) TRI_TRY(read_variant(*run.as_table()));
      } else {
        return invalid(
            fmt::format("{}: '{}' is not part of a grid; give title, seeds, epochs, [set], [vary] "
                        "or [[run]]",
                        line_of(key), key.str()));
      }
    }
    return grid_;
  }

 private:
  std::string line_of(const toml::key& key) const {
    return fmt::format("'{}' line {}", name_, key.source().begin.line);
  }

  Result<void> read_seeds(const toml::array& seeds) {
    for (const toml::node& seed : seeds) {
      if (!seed.is_integer() || seed.as_integer()->get() < 0) {
        return invalid(fmt::format("'{}' line {}: a seed is no whole number of at least 0", name_,
                                   seed.source().begin.line));
      }
      grid_.seeds.push_back(seed.as_integer()->get());
    }
    return {};
  }

  // As the command line would take it.
  Result<std::string> read_value(const toml::key& key, const toml::node& node) const {
    if (key == "seed" || key == "epochs" || key == "out") {
      return invalid(
          fmt::format("{}: {} is not set by run; give seeds and epochs at the top, the "
                      "directories have names of their own",
                      line_of(key), key.str()));
    }
    const auto text = train::plain_text(node);
    if (!text) {
      return invalid(
          fmt::format("{}: {} is no number, text or true or false", line_of(key), key.str()));
    }
    ConfigBuilder judge;
    if (const Result<void> set = judge.set(key.str(), *text); !set) {
      return invalid(fmt::format("{}: {}", line_of(key), set.error().message));
    }
    return *text;
  }

  Result<GridFile::Settings> read_settings(const toml::table& table,
                                           std::string_view besides = {}) const {
    GridFile::Settings settings;
    for (const auto& [key, node] : table) {
      if (key == besides) continue;
      TRI_ASSIGN(std::string text, read_value(key, node));
      settings.emplace_back(key.str(), std::move(text));
    }
    return settings;
  }

  Result<void> read_axes(const toml::table& table) {
    for (const auto& [key, node] : table) {
      if (!node.is_array() || node.as_array()->empty()) {
        return invalid(
            fmt::format("{}: [vary] needs a list of values for {}", line_of(key), key.str()));
      }
      GridFile::Axis axis{std::string(key.str()), {}};
      for (const toml::node& value : *node.as_array()) {
        TRI_ASSIGN(std::string text, read_value(key, value));
        axis.values.push_back(std::move(text));
      }
      grid_.axes.push_back(std::move(axis));
    }
    return {};
  }

  Result<void> read_variant(const toml::table& table) {
    const toml::node* const name = table.get("name");
    if (name == nullptr || !name->is_string()) {
      return invalid(fmt::format("'{}' line {}: a [[run]] has no name; give name = \"...\"", name_,
                                 table.source().begin.line));
    }
    for (const auto& variant : grid_.variants) {
      if (variant.name != name->as_string()->get()) continue;
      return invalid(
          fmt::format("'{}' line {}: a second [[run]] is called '{}'; give every one a "
                      "name of its own",
                      name_, table.source().begin.line, variant.name));
    }
    TRI_ASSIGN(GridFile::Settings settings, read_settings(table, "name"));
    grid_.variants.push_back({name->as_string()->get(), std::move(settings)});
    return {};
  }

  const std::string& name_;
  GridFile grid_;
};

}  // namespace

Result<GridFile> parse_grid(std::string_view text, const std::string& name) {
  if (text.size() > kMostGridBytes) {
    return invalid(fmt::format("'{}' has {} bytes and a grid at most {}; check the path", name,
                               text.size(), kMostGridBytes));
  }
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    return invalid(fmt::format("'{}' line {}: {}; correct the file", name,
                               parsed.error().source().begin.line, parsed.error().description()));
  }
  return GridReader(name).read(parsed.table());
}

Result<GridFile> read_grid_file(const std::string& path) {
  const Result<std::string> text = train::read_small_file(path);
  if (!text) return invalid(text.error().message);
  return parse_grid(*text, path);
}

}  // namespace tri
