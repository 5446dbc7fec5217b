#pragma once
// Door of room train: what this machine offers a training, before any run. Plain values; what
// cannot be read is said to be unknown, never fatal.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tri {

// One bound on the memory of this process.
struct MemoryLimit {
  std::string name;               // "MemAvailable", "cgroup v2 memory.max", ...
  std::optional<uint64_t> bytes;  // none: unlimited or unknown
  bool unlimited = false;
  bool binds = false;   // the smallest one; at most one of a list
  std::string comment;  // the file that says so, or why it is unknown
};

struct DataSetFound {
  std::string name;  // as --data takes it
  std::string path;
};

struct SystemInfo {
  std::string version;
  std::string cpu;                        // model name; "unknown" where the kernel does not tell
  size_t cores = 1;                       // physical
  size_t threads = 1;                     // logical processors that this process may use
  std::string simd_target;                // what kernels will run on
  std::vector<std::string> simd_targets;  // all that this CPU runs and this program has, best first
  uint64_t memory_bytes = 0;              // of the machine; 0 where unknown
  std::vector<MemoryLimit> limits;
  std::vector<DataSetFound> data;
  std::vector<std::string> models;    // as --model takes them
  std::vector<std::string> warnings;  // a sentence for each thing that would stop a training
};

// Reads /proc and the like below `root`, so that a test can show it another machine.
SystemInfo system_info(const std::string& root = "/");

}  // namespace tri
