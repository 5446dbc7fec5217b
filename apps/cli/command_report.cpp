// `triaccel report`: one page about one run or several.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command.h"
#include "report/report.h"

namespace tri::cli {
namespace {

struct ReportCommand {
  const SharedOptions& shared;
  std::vector<std::string> directories;
  std::string out;
};

Result<void> work(const ReportCommand& command) {
  const auto& directories = command.directories;
  const std::string path = !command.out.empty()      ? command.out
                           : directories.size() == 1 ? directories.front() + "/report.html"
                                                     : "report.html";
  TRI_TRY(report::write_report(directories, path));
  if (command.shared.json) {
    const nlohmann::ordered_json json = {{"report", path}, {"runs", directories}};
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  } else if (!command.shared.quiet) {
    fmt::print("{}\n", path);
  }
  return {};
}

}  // namespace

Command report_command(CLI::App& program, const SharedOptions& shared) {
  CLI::App* parser = program.add_subcommand("report", "Write one HTML page about runs");
  auto command = std::make_shared<ReportCommand>(ReportCommand{shared, {}, {}});
  parser->add_option("DIR", command->directories, "Directories of runs")->required();
  parser
      ->add_option("--out", command->out,
                   "The page; default: report.html in DIR, or here for several")
      ->type_name("FILE");
  return {parser, [command] { return work(*command); }};
}

}  // namespace tri::cli
