#pragma once
// Room: train. In: the value of --memory and the limits of this process. Out: the bytes that the
// whole process may hold. Asked once, at the start of a run.
#include <cstdint>
#include <string>

#include "memory/probes.h"
#include "tri/result.h"

namespace tri::train {

// `auto` leaves a tenth of the binding limit to others: what is available shrinks while we run.
inline constexpr double kAutoShare = 0.9;

// `60%` and `auto` are shares of the binding limit. Fails with kInvalid where no limit is known and
// the answer depends on one.
Result<uint64_t> ceiling_bytes(const std::string& memory, const memory::Limits& limits);

// What this process holds with `threads` threads at work but before the engine has any memory:
// code, libraries, heap, stacks. Starts that many threads to see.
Result<uint64_t> process_base_bytes(size_t threads);

}  // namespace tri::train
