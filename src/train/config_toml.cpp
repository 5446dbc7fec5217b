// Configurations as TOML: flat files of `key = value`.
#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "base/check.h"
#include "train/config_table.h"
#include "train/invalid.h"
#include "train/toml_parser.h"
#include "tri/config.h"

namespace tri {
namespace {

// Far above any configuration; keeps a wrong file from eating the memory.
constexpr size_t kMostBytes = size_t{1} << 20;

std::string in_quotes(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result += '"';
}

std::string_view comment_on(Origin origin) {
  switch (origin) {
    case Origin::kDefault:
      return "default";
    case Origin::kDerived:
      return "follows from other options";
    case Origin::kPreset:
      return "preset of the method";
    case Origin::kFile:
      return "file";
    case Origin::kEnvironment:
      return "environment";
    case Origin::kCommandLine:
      return "command line";
  }
  return "";
}

std::string write_toml(const Config& config, const std::vector<Origin>* origins) {
  const auto rows = train::option_rows();
  std::string text;
  std::string_view group;
  for (size_t i = 0; i < rows.size(); ++i) {
    const train::OptionRow& row = rows[i];
    if (group != row.group) {
      text += fmt::format("{}# {}\n", text.empty() ? "" : "\n", row.group);
      group = row.group;
    }
    const std::string value = row.text(config, row.domain);
    const bool is_word = train::find_word(row.domain.syntax, value).has_value();
    const std::string line =
        fmt::format("{} = {}", row.key, row.bare && !is_word ? value : in_quotes(value));
    text += origins == nullptr ? line + "\n"
                               : fmt::format("{:<32} # {}\n", line, comment_on((*origins)[i]));
  }
  return text;
}

}  // namespace

Result<void> ConfigBuilder::read_toml(std::string_view text, const std::string& name) {
  if (text.size() > kMostBytes) {
    return invalid(fmt::format("'{}' has {} bytes and a configuration at most {}; check the path",
                               name, text.size(), kMostBytes));
  }
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    return invalid(fmt::format("'{}' line {}: {}; correct the file", name,
                               parsed.error().source().begin.line, parsed.error().description()));
  }
  for (const auto& [key, node] : parsed.table()) {
    const std::string line = fmt::format("'{}' line {}", name, key.source().begin.line);
    if (train::find_option(key.str()) == nullptr)
      TRI_TRY(assign(key.str(), "", Origin::kFile, line));
    const std::optional<std::string> value = train::plain_text(node);
    if (!value) {
      return invalid(
          fmt::format("{}: {} is a table, a list or a date; give a number, a text or "
                      "true or false",
                      line, key.str()));
    }
    TRI_TRY(assign(key.str(), *value, Origin::kFile, fmt::format("{}: {}", line, key.str())));
  }
  return {};
}

Result<void> ConfigBuilder::read_file(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  if (file) {
    text.resize(kMostBytes + 1);
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<size_t>(file.gcount()));
  }
  if (!file.eof() && text.size() <= kMostBytes) {
    return invalid(fmt::format("cannot read the configuration '{}': {}; check the path", path,
                               std::generic_category().message(errno)));
  }
  return read_toml(text, path);
}

std::string to_toml(const Config& config) { return write_toml(config, nullptr); }
std::string to_toml(const ResolvedConfig& resolved) {
  return write_toml(resolved.config, &resolved.origins);
}

std::string to_json(const Config& config) {
  using Json = nlohmann::ordered_json;
  Json json = Json::object();
  for (const train::OptionRow& row : train::option_rows()) {
    const std::string text = row.text(config, row.domain);
    Json value = row.bare ? Json::parse(text, nullptr, /*allow_exceptions=*/false) : Json(text);
    json[std::string(row.key)] = value.is_discarded() ? Json(text) : std::move(value);
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tri
