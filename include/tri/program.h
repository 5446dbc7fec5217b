#pragma once
// Door of room train: what every program over the engine needs around the engine.
#include <cstdint>
#include <string>
#include <string_view>

#include "tri/result.h"

namespace tri {

std::string_view version();

// Settings that hold for the whole process: freed memory leaves it at once, and TRIACCEL_SIMD=SSE4
// and the like chooses the SIMD target. Call once, before any other work. Fails with kInvalid.
Result<void> apply_environment();

// "512 B", "96.0 MiB".
std::string bytes_text(uint64_t bytes);

}  // namespace tri
