// The `triaccel` program: finds the command, runs it, turns its result into an exit code.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "tri/config.h"
#include "tri/program.h"

namespace tri::cli {
namespace {

constexpr int kDone = 0;
constexpr int kWrongUse = 2;

// The contract with scripts; see README.md.
int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kFailed:
      return 1;
    case ErrorCode::kInvalid:
      return kWrongUse;
    case ErrorCode::kDoesNotFit:
      return 3;
    case ErrorCode::kDiverged:
      return 4;
    case ErrorCode::kInterrupted:
      return 130;
    case ErrorCode::kTerminated:
      return 143;
  }
  return 1;
}

// One line, whatever names in it hold.
int fail(const Error& error) {
  std::string line = error.message;
  std::ranges::replace(line, '\n', ' ');
  fmt::print(stderr, "triaccel: {}\n", line);
  return exit_code(error.code);
}

void add_shared_options(CLI::App& parser, SharedOptions& shared) {
  parser.add_flag("--json", shared.json, "Print one JSON document on standard output");
  parser.add_flag("--quiet", shared.quiet, "Print only errors on standard error");
  parser.add_option("--threads", shared.threads, "Threads to use (default: all the process may)")
      ->check(CLI::Range(1, 4096))
      ->take_last();
  // Commands that train have these among the options of a run; others only obey `threads`.
  if (parser.get_option_no_throw("--config") == nullptr) {
    parser.add_option("--config", shared.file, "Read options from a TOML file")->type_name("FILE");
  }
  if (parser.get_option_no_throw("--set") == nullptr) {
    add_set_option(parser, shared.pairs, "Set an option, as a file would; may be repeated");
  }
  if (parser.get_option_no_throw("--print-config") == nullptr) {
    parser.add_flag("--print-config", shared.print_config,
                    "Show the resulting configuration and stop");
  }
  if (parser.get_option_no_throw("--seed") == nullptr) {
    parser.add_option("--seed", shared.seed, "Accepted everywhere; nothing here draws numbers")
        ->take_last();
  }
}

// Where a command has no configuration of its own: is that given in order, and how many threads?
// Returns whether the command is to run.
Result<bool> apply_shared(SharedOptions& shared, std::string_view command) {
  ConfigBuilder builder;
  if (!shared.file.empty()) TRI_TRY(builder.read_file(shared.file));
  TRI_TRY(builder.read_environment());
  for (const std::string& pair : shared.pairs) {
    TRI_TRY(builder.set_pair(pair));
    if (pair.starts_with("threads=") || pair.starts_with("seed=")) continue;
    return unexpected(ErrorCode::kInvalid,
                      fmt::format("'{}' takes only threads and seed by --set, not '{}'; see "
                                  "'triaccel {} --help'",
                                  command, pair, command));
  }
  if (!shared.seed.empty()) TRI_TRY(builder.set("seed", shared.seed));
  if (shared.threads != 0) TRI_TRY(builder.set("threads", std::to_string(shared.threads)));
  TRI_ASSIGN(const ResolvedConfig resolved, builder.resolve());
  shared.threads = static_cast<size_t>(resolved.config.threads.value_or(0));
  if (shared.print_config)
    fmt::print("{}", shared.json ? to_json(resolved.config) : to_toml(resolved));
  return !shared.print_config;
}

// A file that is opened while 0, 1 or 2 is closed would get that number, and what is printed.
void open_standard_files() {
  for (int file = 0; file <= 2; ++file) {
    if (::fcntl(file, F_GETFD) != -1 || errno != EBADF) continue;
    (void)::open("/dev/null", O_RDWR);  // the lowest number that is free
  }
}

std::vector<Command> add_commands(CLI::App& program, SharedOptions& shared) {
  std::vector<Command> commands = {
#define TRI_COMMAND(name) name##_command(program, shared),
#include "cli/commands.inc"
#undef TRI_COMMAND
  };
  for (Command& command : commands) add_shared_options(*command.parser, shared);
  return commands;
}

std::string names(const std::vector<Command>& commands) {
  std::string text;
  for (const Command& command : commands) {
    text += (text.empty() ? "" : ", ") + command.parser->get_name();
  }
  return text;
}

// The parser's own words for a mistake are good for options, not for a missing or unknown command.
Error wrong_use(const CLI::ParseError& mistake, const std::vector<Command>& commands,
                std::string_view first_argument) {
  for (const Command& command : commands) {
    if (command.parser->parsed()) {
      return {ErrorCode::kInvalid, fmt::format("{}; see 'triaccel {} --help'", mistake.what(),
                                               command.parser->get_name())};
    }
  }
  const std::string seen = first_argument.empty()
                               ? "no command given"
                               : fmt::format("unknown command '{}'", first_argument);
  return {ErrorCode::kInvalid,
          fmt::format("{}; known: {}; see 'triaccel --help'", seen, names(commands))};
}

int run(int argc, char** argv) {
  CLI::App program("Trains convolutional networks inside a given number of bytes.", "triaccel");
  program.set_version_flag("--version", fmt::format("triaccel {}", version()));
  program.require_subcommand(1);
  SharedOptions shared;
  const std::vector<Command> commands = add_commands(program, shared);

  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& answer) {  // --help, --version
    return program.exit(answer);
  } catch (const CLI::ParseError& mistake) {
    return fail(wrong_use(mistake, commands, argc > 1 ? argv[1] : ""));
  }
  if (const Result<void> set = apply_environment(); !set) return fail(set.error());
  for (const Command& command : commands) {
    if (!command.parser->parsed()) continue;
    if (!command.configured) {
      const Result<bool> wanted = apply_shared(shared, command.parser->get_name());
      if (!wanted) return fail(wanted.error());
      if (!*wanted) continue;
    }
    if (const Result<void> done = command.work(); !done) return fail(done.error());
  }
  if (std::fflush(stdout) != 0) {
    return fail({ErrorCode::kFailed, "standard output could not be written; is the disk full?"});
  }
  return kDone;
}

}  // namespace
}  // namespace tri::cli

int main(int argc, char** argv) {
  tri::cli::open_standard_files();
  try {
    return tri::cli::run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs(
        "triaccel: the system gave no more memory outside of the plan; give a smaller --memory or "
        "fewer --threads, or lift the limit of the shell (ulimit -v)\n",
        stderr);
    return 3;
  } catch (const std::exception& unforeseen) {  // ours throw nothing; a library or new may
    std::fprintf(stderr, "triaccel: stopped by an unforeseen error: %s\n", unforeseen.what());
    return 1;
  }
}
