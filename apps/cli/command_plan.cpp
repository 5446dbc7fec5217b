// `triaccel plan`: what a run would need, before it.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/command.h"
#include "cli/config_flags.h"
#include "tri/plan.h"
#include "tri/program.h"

namespace tri::cli {
namespace {

using Json = nlohmann::ordered_json;

Json as_json(const MemoryPlan& plan) {
  Json kinds = Json::object();
  for (const auto& [kind, bytes] : plan.by_kind) kinds[std::string(kind)] = bytes;
  Json layers = Json::array();
  for (const PlannedLayer& layer : plan.layers) {
    layers.push_back({{"name", layer.name},
                      {"params", layer.params},
                      {"weights_bytes", layer.weights_bytes},
                      {"state_bytes", layer.state_bytes},
                      {"saved_bytes", layer.saved_bytes},
                      {"p", layer.p},
                      {"y", layer.y},
                      {"gy", layer.gy},
                      {"gp", layer.gp},
                      {"m", layer.m},
                      {"forward_kernel", layer.forward_kernel},
                      {"products", layer.products},
                      {"backward_kernel", layer.backward_kernel}});
  }
  Json changes = Json::array();
  for (const PlannedChange& change : plan.changes)
    changes.push_back({{"what", change.what},
                       {"from", change.from},
                       {"to", change.to},
                       {"reason", change.reason}});
  Json json = {{"fits", plan.fits},
               {"ceiling_bytes", plan.ceiling_bytes},
               {"engine_peak_bytes", plan.engine_peak_bytes},
               {"process_peak_bytes", plan.process_peak_bytes},
               {"max_batch", plan.max_batch},
               {"params", plan.params},
               {"by_kind", kinds},
               {"layers", layers},
               {"batch", plan.batch},
               {"changes", changes}};
  if (plan.tensor_bits) {
    json["tensor_bits"] = *plan.tensor_bits;
    json["low_ratio"] = *plan.low_ratio;
  }
  return json;
}

void print_text(const MemoryPlan& plan) {
  fmt::print("{:<28}{:>12}{:>12}{:>12}{:>12}  {:<10}{:<10}{:<10}{:<10}{:<6}{:<10}{}\n", "layer",
             "params", "weights", "state", "saved", "P", "Y", "GY", "GP", "M", "products",
             "kernels");
  for (const PlannedLayer& layer : plan.layers) {
    fmt::print("{:<28}{:>12}{:>12}{:>12}{:>12}  {:<10}{:<10}{:<10}{:<10}{:<6}{:<10}{}, {}\n",
               layer.name, layer.params, bytes_text(layer.weights_bytes),
               bytes_text(layer.state_bytes), bytes_text(layer.saved_bytes), layer.p, layer.y,
               layer.gy, layer.gp, layer.m, layer.products, layer.forward_kernel,
               layer.backward_kernel);
  }
  fmt::print("\n");
  for (const auto& [kind, bytes] : plan.by_kind)
    fmt::print("{:<28}{:>12}\n", kind, bytes_text(bytes));
  fmt::print("\n{:<28}{:>12}\n", "parameters", plan.params);
  fmt::print("{:<28}{:>12}  {} bytes\n", "engine peak", bytes_text(plan.engine_peak_bytes),
             plan.engine_peak_bytes);
  fmt::print("{:<28}{:>12}\n", "process peak", bytes_text(plan.process_peak_bytes));
  fmt::print("{:<28}{:>12}  {}\n", "ceiling", bytes_text(plan.ceiling_bytes),
             plan.fits ? "fits" : "does not fit");
  for (const PlannedChange& change : plan.changes)
    fmt::print("{:<28}{:>12}  instead of {}: {}\n", change.what, change.to, change.from,
               change.reason);
  fmt::print("{:<28}{:>12}\n", "largest batch that fits", plan.max_batch);
  if (plan.tensor_bits) {
    fmt::print("{:<28}{:>12}  of all tensors together; low share {:.3f}\n", "sum of tensor bytes",
               bytes_text(*plan.tensor_bits / 8), *plan.low_ratio);
  }
}

Result<void> show_plan(const ConfigFlags& flags, const SharedOptions& shared) {
  TRI_ASSIGN(const ResolvedConfig resolved, flags.resolve());
  if (flags.print(resolved)) return {};
  TRI_ASSIGN(const MemoryPlan plan, plan_memory(resolved));
  if (shared.json)
    fmt::print("{}\n", as_json(plan).dump(2));
  else
    print_text(plan);
  if (!plan.fits) return unexpected(ErrorCode::kDoesNotFit, refusal(plan));
  return {};
}

}  // namespace

Command plan_command(CLI::App& program, const SharedOptions& shared) {
  CLI::App* parser =
      program.add_subcommand("plan", "What a run would need, before it: no data, no training");
  const auto flags = std::make_shared<ConfigFlags>(*parser, shared);
  return {parser, [flags, &shared] { return show_plan(*flags, shared); }, true};
}

}  // namespace tri::cli
