#pragma once
// Room: base. How many parts of a size a whole is cut into.
#include <cstdint>

namespace tri::base {

// REQUIRES: whole >= 0, part > 0.
constexpr int64_t ceil_div(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

}  // namespace tri::base
