#pragma once
// Room: train. The one table of all options (config_table.cpp). In: a key. Out: how to read and
// write that field of Config. A new option is a field of Config and a row.
#include <span>
#include <string>
#include <string_view>

#include "train/config_codec.h"
#include "tri/config.h"

namespace tri::train {

struct OptionRow {
  std::string_view group, key;
  Domain domain;
  std::string_view help;
  bool bare = false;  // numbers and switches stand in TOML without quotes
  // Sets the field and returns nothing, or says what to give instead.
  std::string (*read)(std::string_view text, const Domain& domain, Config& config) = nullptr;
  std::string (*text)(const Config& config, const Domain& domain) = nullptr;
};

std::span<const OptionRow> option_rows();

const OptionRow* find_option(std::string_view key);  // null if there is none
// The option that a mistyped key most likely means; empty if none is near.
std::string_view nearest_option(std::string_view key);

}  // namespace tri::train
