// `triaccel bench step` times whole training steps, `triaccel bench kernels` the kernels, both
// against the machine's limits measured in the same run.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/config_flags.h"
#include "tri/bench.h"
#include "tri/info.h"
#include "tri/program.h"

namespace tri::cli {
namespace {

using Json = nlohmann::ordered_json;

Json as_json(const std::vector<KernelTime>& kernels) {
  Json list = Json::array();
  for (const KernelTime& one : kernels)
    list.push_back({{"layer", one.layer},
                    {"pass", one.pass},
                    {"kernel", one.kernel},
                    {"ms", one.ms},
                    {"other", one.other},
                    {"other_ms", one.other_ms}});
  return list;
}

Json as_json(const StepBench& bench) {
  Json json = {{"ms_per_step", bench.ms_per_step},
               {"images_per_second", bench.images_per_second},
               {"engine_peak_bytes", bench.engine_peak_bytes},
               {"process_peak_bytes", bench.process_peak_bytes},
               {"useful_gflop", bench.useful_gflop},
               {"gflops", bench.gflops},
               {"peak_gflops", bench.peak_gflops},
               {"fraction_of_peak", bench.fraction_of_peak},
               {"phases",
                {{"data", bench.phases.data},
                 {"forward", bench.phases.forward},
                 {"backward", bench.phases.backward},
                 {"update", bench.phases.update},
                 {"control", bench.phases.control}}},
               {"handover_ns", bench.handover_ns}};
  if (!bench.kernels.empty()) json["kernels"] = as_json(bench.kernels);
  return json;
}

Json as_json(const KernelBench& bench) {
  return {{"kernel", bench.kernel},
          {"shape", bench.shape},
          {"storage", bench.storage},
          {"ms", bench.ms},
          {bench.computes ? "gflops" : "gbytes_per_second", bench.rate},
          {"limit", bench.limit},
          {"fraction", bench.fraction}};
}

void print_text(const StepBench& bench) {
  for (const KernelTime& one : bench.kernels)
    fmt::print("{:<28}{:<10}{:<10}{:>9.3f} ms  {:<10}{:>9.3f} ms\n", one.layer, one.pass,
               one.kernel, one.ms, one.other, one.other_ms);
  fmt::print("{:<14}{:>10.2f} ms  (data {:.2f}, forward {:.2f}, backward {:.2f}, update {:.2f})\n",
             "step", bench.ms_per_step, bench.phases.data, bench.phases.forward,
             bench.phases.backward, bench.phases.update);
  fmt::print("{:<14}{:>10.1f} images/s\n", "speed", bench.images_per_second);
  fmt::print("{:<14}{:>10.1f} GFLOP/s of {:.1f}, {:.0f} %\n", "arithmetic", bench.gflops,
             bench.peak_gflops, 100 * bench.fraction_of_peak);
  fmt::print("{:<14}{:>10.0f} ns from core to core and back\n", "handover", bench.handover_ns);
  fmt::print("{:<14}{:>13}\n", "engine peak", bytes_text(bench.engine_peak_bytes));
  fmt::print("{:<14}{:>13}\n", "process peak", bytes_text(bench.process_peak_bytes));
}

void print_text(const KernelBench& bench) {
  fmt::print("{:<32}{:<26}{:<15}{:>9.3f} ms{:>9.1f} of {:>7.1f} {:<8}{:>4.0f} %\n", bench.kernel,
             bench.shape, bench.storage, bench.ms, bench.rate, bench.limit,
             bench.computes ? "GFLOP/s" : "GB/s", 100 * bench.fraction);
  std::fflush(stdout);
}

Result<void> run_step(const ConfigFlags& flags, const SharedOptions& shared) {
  TRI_ASSIGN(const ResolvedConfig resolved, flags.resolve());
  if (flags.print(resolved)) return {};
  TRI_ASSIGN(const StepBench bench, bench_step(resolved));
  if (shared.json)
    fmt::print("{}\n", as_json(bench).dump(2));
  else
    print_text(bench);
  return {};
}

// Two threads by default, as the bars in docs/performance.md are.
Result<void> run_kernels(const std::string& only, const SharedOptions& shared) {
  constexpr size_t kUsualThreads = 2;
  const size_t threads =
      shared.threads != 0 ? shared.threads : std::min(kUsualThreads, system_info().threads);
  Json list = Json::array();
  TRI_TRY(bench_kernels(threads, only, [&](const KernelBench& bench) {
    if (shared.json)
      list.push_back(as_json(bench));
    else
      print_text(bench);
  }));
  if (shared.json) fmt::print("{}\n", list.dump(2));
  return {};
}

}  // namespace

Command bench_command(CLI::App& program, const SharedOptions& shared) {
  CLI::App* parser = program.add_subcommand("bench", "Time training steps or kernels");
  parser->require_subcommand(0, 1);  // the parser's own words for none would not name them
  CLI::App* step = parser->add_subcommand("step", "Whole training steps on made-up data");
  CLI::App* kernels = parser->add_subcommand("kernels", "Kernels against the machine's limits");
  for (CLI::App* one : {step, kernels}) {
    one->fallthrough();
    one->footer("--json, --quiet and --threads N: as for every command");
  }
  const auto only = std::make_shared<std::string>();
  kernels->add_option("--only", *only, "those with this text in their name, shape or storage");
  const auto flags = std::make_shared<ConfigFlags>(*step, shared, true);
  return {parser, [=, &shared]() -> Result<void> {
            if (step->parsed()) return run_step(*flags, shared);
            if (kernels->parsed()) return run_kernels(*only, shared);
            return unexpected(ErrorCode::kInvalid,
                              "bench was not told what to time; give 'bench step' or 'bench "
                              "kernels'");
          }};
}

}  // namespace tri::cli
