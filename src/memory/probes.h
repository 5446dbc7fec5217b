#pragma once
// Room: memory. In: the kernel's files below a root directory, "/" but in tests. Out: what this
// process holds and what it may hold. Decides nothing: which limit becomes the ceiling, and with
// what margin, is for the caller. Reads afresh at each call.
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tri/result.h"

namespace tri::memory {

// A number of bytes, or the sentence that says why it is unknown.
struct Reading {
  std::optional<size_t> bytes;
  std::string why_unknown;
};

struct Limit {
  enum class Source {
    kCgroupMax,     // v2 memory.max: exceeding it kills
    kCgroupHigh,    // v2 memory.high: exceeding it throttles
    kCgroupV1,      // v1 memory.limit_in_bytes: exceeding it kills
    kAvailable,     // MemAvailable, and what this process holds already
    kTotal,         // MemTotal
    kAddressSpace,  // RLIMIT_AS: bounds addresses, resident bytes are fewer
  };
  enum class State { kBytes, kUnlimited, kUnknown };

  Source source = Source::kTotal;
  State state = State::kUnknown;
  size_t bytes = 0;     // if kBytes
  size_t used = 0;      // what this process holds of it now; 0 if unknown
  std::string comment;  // the file that says so, or why it is unknown

  // The process is already above it: nothing can be started under it.
  bool exceeded() const { return state == State::kBytes && used > bytes; }
};

std::string_view name(Limit::Source source);

struct Limits {
  std::vector<Limit> all;  // one per source, in the order of Source; the tightest of a hierarchy

  // The smallest known limit, the first of equals; null if nothing is known.
  const Limit* binding() const;
  std::optional<size_t> least() const;
};

class Probes {
 public:
  explicit Probes(std::filesystem::path root = "/") : root_(std::move(root)) {}

  Reading resident() const;       // VmRSS
  Reading peak_resident() const;  // VmHWM: the most since the start or the last reset
  Reading address_space() const;  // VmSize
  Reading total() const;          // MemTotal
  Reading available() const;      // MemAvailable

  // VmHWM counts again from VmRSS. Fails where the kernel does not permit it (some containers).
  Result<void> reset_peak_resident() const;

  Limits limits() const;

 private:
  Reading field(const char* file, std::string_view name) const;

  std::filesystem::path root_;
};

}  // namespace tri::memory
