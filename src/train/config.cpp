#include "tri/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/check.h"
#include "train/config_rules.h"
#include "train/config_table.h"
#include "train/invalid.h"

namespace tri {
namespace {

using train::OptionRow;

// The six options that --method presets, and each preset in that order.
constexpr std::array<std::string_view, 6> kPresetKeys = {"precision", "weights",   "state",
                                                         "step",      "curvature", "batch-mode"};
constexpr std::array<std::string_view, 6> preset(Method method) {
  switch (method) {
    case Method::kTriaccel:
      return {"adaptive", "bf16+8", "int8", "fused", "fisher", "elastic"};
    case Method::kFp32:
      return {"fp32", "fp32", "fp32", "after", "off", "fixed"};
    case Method::kAmp:
      return {"bf16", "fp32+bf16", "fp32", "after", "off", "fixed"};
  }
  return {};
}

size_t index_of(const OptionRow& row) {
  return static_cast<size_t>(&row - train::option_rows().data());
}

// A value as a message shows it: on one line, and no book because one was given.
std::string shown(std::string_view text) {
  constexpr size_t kMost = 80;
  std::string line(text.substr(0, kMost));
  std::ranges::replace_if(
      line, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }, '?');
  return fmt::format("'{}{}'", line, text.size() > kMost ? "..." : "");
}

}  // namespace

std::string environment_name(std::string_view key) {
  std::string name = "TRIACCEL_";
  for (const char c : key) name += c == '-' ? '_' : static_cast<char>(c - 'a' + 'A');
  return name;
}

ConfigBuilder::ConfigBuilder() : origins_(train::option_rows().size(), Origin::kDefault) {}

Result<void> ConfigBuilder::assign(std::string_view key, std::string_view text, Origin origin,
                                   const std::string& where) {
  const OptionRow* const row = train::find_option(key);
  if (row == nullptr) {
    const std::string_view near = train::nearest_option(key);
    return invalid(
        fmt::format("{}: there is no option {}; {}", where, shown(key),
                    near.empty() ? "--help lists them" : fmt::format("did you mean '{}'?", near)));
  }
  Config changed = config_;
  if (const std::string advice = row->read(text, row->domain, changed); !advice.empty()) {
    return invalid(fmt::format("{} is {}; {}", where, shown(text), advice));
  }
  if (origin >= origins_[index_of(*row)]) {
    config_ = std::move(changed);
    origins_[index_of(*row)] = origin;
  }
  return {};
}

Result<void> ConfigBuilder::set(std::string_view key, std::string_view text, Origin origin) {
  return assign(key, text, origin, fmt::format("--{}", key));
}

Result<void> ConfigBuilder::set_pair(std::string_view pair) {
  const size_t equals = pair.find('=');
  if (equals == std::string_view::npos) {
    return invalid(fmt::format("--set {} has no '='; give key=value", shown(pair)));
  }
  const std::string_view key = pair.substr(0, equals);
  return assign(key, pair.substr(equals + 1), Origin::kCommandLine, fmt::format("--set {}", key));
}

Result<void> ConfigBuilder::read_environment(const Lookup& lookup) {
  for (const OptionRow& row : train::option_rows()) {
    const std::string variable = environment_name(row.key);
    if (const char* const text = lookup(variable); text != nullptr) {
      TRI_TRY(assign(row.key, text, Origin::kEnvironment, variable));
    }
  }
  return {};
}

Result<void> ConfigBuilder::read_environment() {
  return read_environment(
      [](const std::string& variable) { return std::getenv(variable.c_str()); });
}

Result<ResolvedConfig> ConfigBuilder::resolve() const {
  ResolvedConfig resolved = {config_, origins_};
  Config& config = resolved.config;
  const auto words = preset(config.method);
  for (size_t i = 0; i < kPresetKeys.size(); ++i) {
    const OptionRow& row = *train::find_option(kPresetKeys[i]);
    Origin& origin = resolved.origins[index_of(row)];
    if (origin >= Origin::kPreset) continue;
    const std::string refusal = row.read(words[i], row.domain, config);
    TRI_CHECK(refusal.empty(), "{} = {}", row.key, words[i]);
    origin = Origin::kPreset;
  }

  const Config given = config;
  train::derive(config);
  for (const OptionRow& row : train::option_rows()) {
    if (row.text(config, row.domain) != row.text(given, row.domain)) {
      resolved.origins[index_of(row)] = Origin::kDerived;
    }
  }
  TRI_TRY(train::check_together(config));
  return resolved;
}

std::string_view name(Method method) {
  const OptionRow& row = *train::find_option("method");
  return train::word_at(row.domain.syntax, static_cast<size_t>(method));
}

}  // namespace tri
