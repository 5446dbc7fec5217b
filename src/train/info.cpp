#include "tri/info.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/bytes.h"
#include "memory/probes.h"
#include "nn/catalog.h"
#include "simd/target.h"
#include "train/machine.h"
#include "tri/program.h"

namespace tri {
namespace {

// Where Debian's package puts it; `--data fashion-mnist` looks there first.
constexpr const char* kFashionMnist = "usr/share/datasets/fashion-mnist";

std::vector<DataSetFound> find_data(const std::filesystem::path& root) {
  const std::filesystem::path folder = root / kFashionMnist;
  std::error_code unreadable;  // then it is not found
  if (!std::filesystem::exists(folder / "train-images-idx3-ubyte.gz", unreadable)) return {};
  return {{"fashion-mnist", folder.string()}};
}

void add_limits(const memory::Limits& limits, SystemInfo& info) {
  for (const memory::Limit& limit : limits.all) {
    using State = memory::Limit::State;
    MemoryLimit& shown = info.limits.emplace_back();
    shown.name = memory::name(limit.source);
    if (limit.state == State::kBytes) shown.bytes = limit.bytes;
    shown.unlimited = limit.state == State::kUnlimited;
    shown.binds = &limit == limits.binding();
    shown.comment = limit.comment;
    if (limit.exceeded()) {
      info.warnings.push_back(fmt::format(
          "{} is {}, but this process alone already holds {}; raise it before a training",
          shown.name, base::format_bytes(limit.bytes), base::format_bytes(limit.used)));
    }
  }
}

}  // namespace

SystemInfo system_info(const std::string& root) {
  const train::Machine machine = train::read_machine(root);
  SystemInfo info;
  info.version = version();
  info.cpu = machine.cpu;
  info.cores = machine.cores;
  info.threads = machine.threads;
  info.simd_target = simd::active_target();
  for (const std::string_view name : simd::runnable_targets()) info.simd_targets.emplace_back(name);
  const memory::Probes probes(root);
  info.memory_bytes = probes.total().bytes.value_or(0);
  add_limits(probes.limits(), info);
  info.data = find_data(root);
  for (const nn::CatalogEntry& entry : nn::catalog()) info.models.push_back(entry.name);
  return info;
}

}  // namespace tri
