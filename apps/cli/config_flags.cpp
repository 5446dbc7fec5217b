#include "cli/config_flags.h"

#include <fmt/format.h>

#include <cstdlib>

namespace tri::cli {
namespace {

std::string help_text(const ConfigOption& option) {
  if (option.syntax.empty() || option.fallback.empty()) return std::string(option.help);
  return fmt::format("{} [{}]", option.help, option.fallback);
}

}  // namespace

ConfigFlags::ConfigFlags(CLI::App& parser, const SharedOptions& shared, bool bench)
    : shared_(&shared) {
  constexpr std::string_view kGroup = "configuration";
  parser.add_option("--config", file_, "Read options from a TOML file")
      ->type_name("FILE")
      ->group(std::string(kGroup));
  add_set_option(parser, pairs_, "Set an option, as a file would; may be repeated")
      ->group(std::string(kGroup));
  parser.add_flag("--print-config", print_config_, "Show the resulting configuration and stop")
      ->group(std::string(kGroup));
  for (const ConfigOption& option : config_options()) {
    if (option.key == "threads" || (option.group == "bench step" && !bench)) continue;
    const std::string flag = fmt::format("--{}", option.key);
    const std::string help = help_text(option);
    CLI::Option* const added =
        option.syntax.empty() ? parser.add_flag(flag, help) : parser.add_option(flag, help);
    if (!option.syntax.empty()) added->type_name(std::string(option.syntax))->take_last();
    added->group(std::string(option.group));
    flags_.push_back({option.key, added});
  }
}

Result<std::vector<std::pair<std::string, std::string>>> ConfigFlags::given() const {
  std::vector<std::pair<std::string, std::string>> settings;
  for (const std::string& pair : pairs_) {
    const size_t equals = pair.find('=');
    if (equals == std::string::npos) {
      return unexpected(ErrorCode::kInvalid,
                        fmt::format("--set '{}' has no '='; give key=value", pair));
    }
    settings.emplace_back(pair.substr(0, equals), pair.substr(equals + 1));
  }
  for (const Flag& flag : flags_) {
    if (flag.option->count() > 0) {
      settings.emplace_back(flag.key, flag.option->results().back());
    }
  }
  if (shared_->threads != 0) settings.emplace_back("threads", std::to_string(shared_->threads));
  return settings;
}

Result<std::vector<std::pair<std::string, std::string>>> ConfigFlags::changes(
    std::string_view with) const {
  if (!file_.empty() || print_config_) {
    return unexpected(
        ErrorCode::kInvalid,
        fmt::format("{} goes on with the configuration of the run, its config.toml; leave out {}",
                    with, file_.empty() ? "--print-config" : "--config " + file_));
  }
  std::vector<std::pair<std::string, std::string>> settings;
  // Not the ceiling: what the run was given, or was told by `set`, is stronger than a default.
  for (const std::string_view key : {"threads", "max-steps", "save-every"}) {
    const std::string name = environment_name(key);
    if (const char* const text = std::getenv(name.c_str())) settings.emplace_back(key, text);
  }
  TRI_ASSIGN(const auto stronger, given());
  settings.insert(settings.end(), stronger.begin(), stronger.end());
  return settings;
}

Result<ResolvedConfig> ConfigFlags::resolve(const Settings& defaults) const {
  ConfigBuilder builder;
  for (const auto& [key, text] : defaults) TRI_TRY(builder.set(key, text, Origin::kDefault));
  if (!file_.empty()) TRI_TRY(builder.read_file(file_));
  TRI_TRY(builder.read_environment());
  TRI_ASSIGN(const auto settings, given());
  for (const auto& [key, text] : settings) TRI_TRY(builder.set(key, text));
  return builder.resolve();
}

bool ConfigFlags::print(const ResolvedConfig& resolved) const {
  if (!print_config_) return false;
  if (shared_->json) {
    fmt::print("{}", to_json(resolved.config));
  } else {
    fmt::print("{}", to_toml(resolved));
  }
  return true;
}

}  // namespace tri::cli
