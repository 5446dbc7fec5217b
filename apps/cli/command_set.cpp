// `triaccel set`: asks a run in progress to change its ceiling.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "cli/command.h"
#include "tri/run_request.h"

namespace tri::cli {
namespace {

struct SetCommand {
  const SharedOptions& shared;
  std::string directory, change;
};

Result<void> work(const SetCommand& command) {
  constexpr std::string_view kMemory = "memory=";
  if (!command.change.starts_with(kMemory)) {
    return unexpected(ErrorCode::kInvalid,
                      fmt::format("'{}' cannot be changed in a run; give memory=SIZE, such as "
                                  "memory=96MiB",
                                  command.change));
  }
  const std::string memory = command.change.substr(kMemory.size());
  TRI_ASSIGN(const uint64_t serial, request_memory(command.directory, memory));
  if (command.shared.json) {
    const nlohmann::ordered_json json = {
        {"directory", command.directory}, {"memory", memory}, {"serial", serial}};
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  } else if (!command.shared.quiet) {
    fmt::print("asked the run in {} to live in {} from its next step on\n", command.directory,
               memory);
  }
  return {};
}

}  // namespace

Command set_command(CLI::App& program, const SharedOptions& shared) {
  CLI::App* parser = program.add_subcommand("set", "Change the ceiling of a run in progress");
  auto command = std::make_shared<SetCommand>(SetCommand{shared, {}, {}});
  parser->add_option("DIR", command->directory, "Directory of the run")->required();
  parser->add_option("CHANGE", command->change, "memory=SIZE, such as memory=96MiB")->required();
  return {parser, [command] { return work(*command); }};
}

}  // namespace tri::cli
