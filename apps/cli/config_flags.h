#pragma once
// apps/cli. The options of a run (tri/config.h) as flags of a command, with --config, --set and
// --print-config. In: what the parser saw. Out: settings in the order of their strength.
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/command.h"
#include "tri/config.h"

namespace tri::cli {

class ConfigFlags {
 public:
  // Adds a flag for every option; those of `bench step` only where `bench` says so. Lives as long
  // as the parser: keep it in a shared_ptr that the command's work captures.
  ConfigFlags(CLI::App& parser, const SharedOptions& shared, bool bench = false);

  // What the command line alone says, as key and text, later ones stronger. Fails with kInvalid.
  Result<std::vector<std::pair<std::string, std::string>>> given() const;

  // The same for a run that has a configuration already, with what the environment says of the
  // options that may change. Refuses --config and --print-config; `with` is the option's name.
  Result<std::vector<std::pair<std::string, std::string>>> changes(std::string_view with) const;

  // File, environment and command line together; `defaults` are the command's own, weaker than any.
  using Settings = std::vector<std::pair<std::string, std::string>>;
  Result<ResolvedConfig> resolve(const Settings& defaults = {}) const;

  // With --print-config: shows the configuration on standard output; the command then ends.
  bool print(const ResolvedConfig& resolved) const;

 private:
  struct Flag {
    std::string_view key;
    CLI::Option* option;  // owned by the parser
  };

  const SharedOptions* shared_;
  std::vector<Flag> flags_;
  std::string file_;
  std::vector<std::string> pairs_;
  bool print_config_ = false;
};

}  // namespace tri::cli
