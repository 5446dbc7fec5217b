#include "memory/probes.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "memory/cgroup.h"
#include "memory/system_files.h"

namespace tri::memory {
namespace {

constexpr const char* kStatus = "proc/self/status";
constexpr const char* kMeminfo = "proc/meminfo";

Limit from_reading(Limit::Source source, const Reading& reading, const char* file) {
  if (!reading.bytes) return {source, Limit::State::kUnknown, 0, 0, reading.why_unknown};
  return {source, Limit::State::kBytes, *reading.bytes, 0, fmt::format("/{}", file)};
}

// The soft limit, in the kernel's own table so that tests can set it.
Limit address_space_limit(const std::filesystem::path& root) {
  Limit limit{Limit::Source::kAddressSpace, Limit::State::kUnknown, 0, 0, {}};
  const Result<std::string> text = read_text(root / "proc/self/limits");
  if (!text) {
    limit.comment = text.error().message;
    return limit;
  }
  constexpr std::string_view kName = "Max address space ";
  for (std::string_view line : split(*text, '\n')) {
    if (!line.starts_with(kName)) continue;
    line.remove_prefix(std::min(line.find_first_not_of(' ', kName.size()), line.size()));
    const std::string_view word = line.substr(0, line.find(' '));
    const std::optional<size_t> bytes = parse_number(word);
    if (!bytes && word != "unlimited") break;
    limit.state = bytes ? Limit::State::kBytes : Limit::State::kUnlimited;
    limit.bytes = bytes.value_or(0);
    limit.comment = "/proc/self/limits";
    return limit;
  }
  limit.comment = "/proc/self/limits has no readable line \"Max address space\"";
  return limit;
}

}  // namespace

std::string_view name(Limit::Source source) {
  switch (source) {
    case Limit::Source::kCgroupMax:
      return "cgroup v2 memory.max";
    case Limit::Source::kCgroupHigh:
      return "cgroup v2 memory.high";
    case Limit::Source::kCgroupV1:
      return "cgroup v1 memory.limit_in_bytes";
    case Limit::Source::kAvailable:
      return "MemAvailable";
    case Limit::Source::kTotal:
      return "MemTotal";
    case Limit::Source::kAddressSpace:
      return "RLIMIT_AS";
  }
  return "";
}

const Limit* Limits::binding() const {
  const Limit* least = nullptr;
  for (const Limit& limit : all) {
    if (limit.state != Limit::State::kBytes) continue;
    if (least == nullptr || limit.bytes < least->bytes) least = &limit;
  }
  return least;
}

std::optional<size_t> Limits::least() const {
  const Limit* const limit = binding();
  return limit == nullptr ? std::nullopt : std::optional(limit->bytes);
}

Reading Probes::field(const char* file, std::string_view name) const {
  const Result<std::string> text = read_text(root_ / file);
  if (!text) return {std::nullopt, text.error().message};
  const std::optional<size_t> bytes = kilobyte_field(*text, name);
  if (!bytes) return {std::nullopt, fmt::format("/{} has no readable line \"{}\"", file, name)};
  return {bytes, {}};
}

Reading Probes::resident() const { return field(kStatus, "VmRSS"); }
Reading Probes::peak_resident() const { return field(kStatus, "VmHWM"); }
Reading Probes::address_space() const { return field(kStatus, "VmSize"); }
Reading Probes::total() const { return field(kMeminfo, "MemTotal"); }
Reading Probes::available() const { return field(kMeminfo, "MemAvailable"); }

Result<void> Probes::reset_peak_resident() const {
  const std::filesystem::path path = root_ / "proc/self/clear_refs";
  std::FILE* const file = std::fopen(path.c_str(), "r+e");  // r+: never creates it
  bool done = file != nullptr && std::fputs("5\n", file) >= 0;
  if (file != nullptr) done = (std::fclose(file) == 0) && done;
  if (done) return {};
  return unexpected(ErrorCode::kFailed,
                    fmt::format("cannot reset the peak of resident memory: {} refuses ({}); the "
                                "peak counts from the start of the process",
                                path.native(), std::strerror(errno)));
}

Limits Probes::limits() const {
  const size_t resident_bytes = resident().bytes.value_or(0);
  Limits limits;
  for (const auto source :
       {Limit::Source::kCgroupMax, Limit::Source::kCgroupHigh, Limit::Source::kCgroupV1}) {
    limits.all.push_back(cgroup_limit(root_, source));
  }
  limits.all.push_back(from_reading(Limit::Source::kAvailable, available(), kMeminfo));
  // The kernel counts what others could get; what is ours already, we may keep.
  limits.all.back().bytes += resident_bytes;
  limits.all.push_back(from_reading(Limit::Source::kTotal, total(), kMeminfo));
  for (Limit& limit : limits.all) limit.used = resident_bytes;
  limits.all.push_back(address_space_limit(root_));
  limits.all.back().used = address_space().bytes.value_or(0);
  return limits;
}

}  // namespace tri::memory
