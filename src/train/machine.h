#pragma once
// Room: train. What the processor is, from the kernel's own tables. In: a root folder (tests show
// another machine). Out: plain values; a table that cannot be read leaves the defaults.
#include <cstddef>
#include <string>

namespace tri::train {

struct Machine {
  std::string cpu = "unknown processor";
  size_t cores = 1;    // physical; as many as processors where the kernel does not tell
  size_t threads = 1;  // logical processors this process may run on
};
Machine read_machine(const std::string& root);

}  // namespace tri::train
