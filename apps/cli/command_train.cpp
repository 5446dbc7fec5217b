// `triaccel train`: a run from its first step to its last, or the rest of one.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/command.h"
#include "cli/config_flags.h"
#include "report/report.h"
#include "tri/program.h"
#include "tri/session.h"

namespace tri::cli {
namespace {

using Json = nlohmann::ordered_json;

struct TrainCommand {
  TrainCommand(CLI::App& parser, const SharedOptions& given) : shared(given), flags(parser, given) {
    parser.add_option("--resume", resumed, "Continue the run in DIR exactly where it stopped")
        ->type_name("DIR")
        ->check(given_directory());
    parser
        .add_option("--repeat", repeated,
                    "Train as the run in DIR did, below the ceilings it met: the same bits")
        ->type_name("DIR")
        ->check(given_directory())
        ->excludes("--resume");
  }

  // An unset variable of a script would start another run.
  static CLI::Validator given_directory() {
    return {[](const std::string& text) {
              return text.empty() ? "the directory is empty; give that of a run" : "";
            },
            ""};
  }

  const SharedOptions& shared;
  ConfigFlags flags;
  std::string resumed, repeated;
};

std::string percent(const Json& share) {
  return share.is_null() ? "-" : fmt::format("{:.2f} %", 100 * share.get<double>());
}

std::string number(const Json& value, std::string_view unit) {
  return value.is_null() ? "-" : fmt::format("{:.1f} {}", value.get<double>(), unit);
}

void print_line(std::string_view label, const std::string& text) {
  fmt::print("  {:<18}{}\n", label, text);
}

// What a run came to, for people; scripts read summary.json.
void print_table(const TrainOutcome& outcome) {
  const Json summary = Json::parse(outcome.summary);
  const auto bytes = [&](const char* key) { return bytes_text(summary[key].get<uint64_t>()); };
  fmt::print("\n");
  print_line("status", summary["status"]);
  print_line("test accuracy", fmt::format("{} (best {})", percent(summary["test_accuracy"]),
                                          percent(summary["best_test_accuracy"])));
  print_line("epochs", fmt::format("{}, {} each", summary["epochs"].get<int64_t>(),
                                   number(summary["epoch_seconds"], "s")));
  print_line("speed", number(summary["images_per_second"], "images/s"));
  print_line("engine memory", bytes("engine_peak_bytes"));
  print_line("process memory",
             fmt::format("{} of {}", bytes("process_peak_bytes"), bytes("ceiling_bytes")));
  print_line("summary", outcome.directory + "/summary.json");
  print_line("events", outcome.directory + "/metrics.jsonl");
  print_line("report", outcome.directory + "/report.html");
  for (const char* which : {"best", "last"}) {
    const std::string weights =
        fmt::format("{}/checkpoints/{}/model.safetensors", outcome.directory, which);
    if (std::error_code ignored; !std::filesystem::exists(weights, ignored)) continue;
    return print_line(fmt::format("{} weights", which), weights);
  }
}

Result<void> work(const TrainCommand& command) {
  // Standard output belongs to the document where there is one.
  const Display display{command.shared.quiet  ? -1
                        : command.shared.json ? STDERR_FILENO
                                              : STDOUT_FILENO};
  TrainOutcome outcome;
  if (!command.repeated.empty()) {
    TRI_ASSIGN(const Settings changes, command.flags.changes("--repeat"));
    TRI_ASSIGN(outcome, repeat_training(command.repeated, changes, display));
  } else if (command.resumed.empty()) {
    TRI_ASSIGN(const ResolvedConfig resolved, command.flags.resolve());
    if (command.flags.print(resolved)) return {};
    TRI_ASSIGN(outcome, run_training(resolved, display));
  } else {
    TRI_ASSIGN(const Settings changes, command.flags.changes("--resume"));
    TRI_ASSIGN(outcome, resume_training(command.resumed, changes, display));
  }
  // The run stands without its page: what speaks against the page is no failure of the run.
  const std::string page = outcome.directory + "/report.html";
  if (const auto written = report::write_report({outcome.directory}, page); !written) {
    fmt::print(stderr, "triaccel: {}\n", written.error().message);
  }
  if (command.shared.json) {
    fmt::print("{}", outcome.summary);
  } else if (!command.shared.quiet) {
    print_table(outcome);
  }
  if (outcome.stopped) return unexpected(*outcome.stopped);
  return {};
}

}  // namespace

Command train_command(CLI::App& program, const SharedOptions& shared) {
  CLI::App* parser =
      program.add_subcommand("train", "Train a network; --resume DIR continues a run");
  auto command = std::make_shared<TrainCommand>(*parser, shared);
  return {parser, [command] { return work(*command); }, true};
}

}  // namespace tri::cli
