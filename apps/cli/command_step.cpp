// `triaccel step`: one training step on given weights and a given batch.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/command.h"
#include "cli/config_flags.h"
#include "tri/step.h"

namespace tri::cli {
namespace {

Result<void> run(const ConfigFlags& flags, const std::string& input, const SharedOptions& shared) {
  TRI_ASSIGN(const int64_t samples, samples_of(input));
  TRI_ASSIGN(const ResolvedConfig resolved,
             flags.resolve(
                 {{"method", "fp32"}, {"batch", std::to_string(samples)}, {"ghost-batch", "0"}}));
  if (flags.print(resolved)) return {};
  const Config& config = resolved.config;
  for (const auto& [flag, file] : {std::pair{"--init", config.init}, {"--out", config.out}}) {
    if (file.empty())
      return unexpected(ErrorCode::kInvalid, fmt::format("{} is missing; give a safetensors file; "
                                                         "see 'triaccel step --help'",
                                                         flag));
  }
  for (const auto& [flag, file] : {std::pair{"--init", config.init}, {"--input", input}}) {
    std::error_code ignored;
    if (!std::filesystem::equivalent(file, config.out, ignored)) continue;
    return unexpected(
        ErrorCode::kInvalid,
        fmt::format("--out '{}' is the file of {}, which would be lost; give another one",
                    config.out, flag));
  }
  TRI_ASSIGN(const OneStep step, one_step(config, input));
  if (shared.json) {
    const nlohmann::ordered_json document = {{"loss", step.loss},
                                             {"samples", step.samples},
                                             {"classes", step.classes},
                                             {"params", step.params},
                                             {"out", config.out}};
    fmt::print("{}\n",
               document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  } else if (!shared.quiet) {
    fmt::print("loss {:.6f} of {} samples; gradients in {}\n", step.loss, step.samples, config.out);
  }
  return {};
}

}  // namespace

Command step_command(CLI::App& program, const SharedOptions& shared) {
  CLI::App* parser = program.add_subcommand(
      "step", "One training step on given weights and a given batch, to compare with others");
  const auto input = std::make_shared<std::string>();
  parser->add_option("--input", *input, "safetensors file with x (N, C, H, W; F32) and y (N; I64)")
      ->type_name("FILE")
      ->required();
  const auto flags = std::make_shared<ConfigFlags>(*parser, shared);
  return {parser, [flags, input, &shared] { return run(*flags, *input, shared); }, true};
}

}  // namespace tri::cli
