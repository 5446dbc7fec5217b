#pragma once
// Room: base.
#include <cstddef>

namespace tri::base {

inline constexpr size_t kMiB = size_t{1} << 20;

}  // namespace tri::base
