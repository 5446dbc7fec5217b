#pragma once
// apps/cli. What a command is to main.cpp: a parser of its options and the work to do once they are
// parsed. A new command is one file command_NAME.cpp and one line in commands.inc.
#include <CLI/CLI.hpp>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tri/result.h"

namespace tri::cli {

// Options that every command takes; filled before the work starts.
struct SharedOptions {
  bool json = false;   // one JSON document on standard output, all else on standard error
  bool quiet = false;  // only errors on standard error
  size_t threads = 0;  // 0: as many as the process may use
  // Of commands that take no ConfigFlags.
  std::string file;
  std::vector<std::string> pairs;
  std::string seed;
  bool print_config = false;
};

// `--set`, into `pairs`.
inline CLI::Option* add_set_option(CLI::App& parser, std::vector<std::string>& pairs,
                                   const std::string& help) {
  return parser.add_option("--set", pairs, help)
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

struct Command {
  CLI::App* parser;  // owned by the program's parser
  std::function<Result<void>()> work;
  bool configured = false;  // by ConfigFlags of its own
};

#define TRI_COMMAND(name) Command name##_command(CLI::App& program, const SharedOptions& shared);
#include "cli/commands.inc"
#undef TRI_COMMAND

}  // namespace tri::cli
