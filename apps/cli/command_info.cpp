// `triaccel info`: the machine, the SIMD target, the memory limits and which of them binds, the
// data, the models.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "cli/command.h"
#include "tri/info.h"
#include "tri/program.h"

namespace tri::cli {
namespace {

using Json = nlohmann::ordered_json;

Json as_json(const SystemInfo& info) {
  Json limits = Json::array();
  for (const MemoryLimit& limit : info.limits) {
    limits.push_back({{"name", limit.name},
                      {"bytes", limit.bytes ? Json(*limit.bytes) : Json(nullptr)},
                      {"unlimited", limit.unlimited},
                      {"binds", limit.binds},
                      {"comment", limit.comment}});
  }
  Json data = Json::array();
  for (const DataSetFound& found : info.data) {
    data.push_back({{"name", found.name}, {"path", found.path}});
  }
  return {{"version", info.version},
          {"machine",
           {{"cpu", info.cpu},
            {"cores", info.cores},
            {"threads", info.threads},
            {"memory_bytes", info.memory_bytes}}},
          {"simd", {{"target", info.simd_target}, {"targets", info.simd_targets}}},
          {"limits", limits},
          {"data", data},
          {"models", info.models},
          {"warnings", info.warnings}};
}

std::string limit_text(const MemoryLimit& limit) {
  if (limit.bytes) {
    return fmt::format("{:>12}  {} ({}){}", bytes_text(*limit.bytes), limit.name, limit.comment,
                       limit.binds ? " <- binds" : "");
  }
  return fmt::format("{:>12}  {} ({})", limit.unlimited ? "unlimited" : "unknown", limit.name,
                     limit.comment);
}

// One line, its label only before the first of a group.
void print_line(std::string_view& label, std::string_view text) {
  fmt::print("{:<10}{}\n", label, text);
  label = "";
}

void print_text(const SystemInfo& info) {
  fmt::print("{:<10}{}\n", "triaccel", info.version);
  fmt::print("{:<10}{}, {} cores, {} threads, {} of memory\n", "machine", info.cpu, info.cores,
             info.threads, info.memory_bytes != 0 ? bytes_text(info.memory_bytes) : "unknown size");
  fmt::print("{:<10}{} (runnable: {})\n", "simd", info.simd_target,
             fmt::join(info.simd_targets, ", "));
  std::string_view label = "limits";
  for (const MemoryLimit& limit : info.limits) print_line(label, limit_text(limit));
  label = "data";
  for (const DataSetFound& found : info.data) {
    print_line(label, fmt::format("{} ({})", found.name, found.path));
  }
  fmt::print("{:<10}{}\n", "models", fmt::join(info.models, ", "));
}

Result<void> show_info(const SharedOptions& shared) {
  SystemInfo info = system_info();
  if (shared.threads != 0) info.threads = shared.threads;
  if (shared.json) {
    // Paths and names come from the system and may be no UTF-8; JSON must be.
    fmt::print("{}\n", as_json(info).dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    print_text(info);
  }
  if (!shared.quiet) {
    for (const std::string& warning : info.warnings) fmt::print(stderr, "triaccel: {}\n", warning);
  }
  return {};
}

}  // namespace

Command info_command(CLI::App& program, const SharedOptions& shared) {
  CLI::App* parser = program.add_subcommand(
      "info", "Machine, SIMD target, memory limits and which binds, data sets, models");
  return {parser, [&shared] { return show_info(shared); }};
}

}  // namespace tri::cli
