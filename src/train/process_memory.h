#pragma once
// Room: train. What a process holds besides the engine's memory.
#include <cstddef>
#include <cstdint>

#include "tri/result.h"

namespace tri::train {

// With `threads` threads at work but before the engine has any memory: code, libraries, heap,
// stacks. Starts that many threads to see, when it is first asked for that many.
Result<uint64_t> process_base_bytes(size_t threads);

// The most that the process has held so far; 0 where the system does not tell.
uint64_t process_peak_bytes();

}  // namespace tri::train
