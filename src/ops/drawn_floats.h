#pragma once
// Room: ops, for tests only.
#include <cstdint>
#include <vector>

#include "base/philox.h"

namespace tri::ops {

// In [-1, 1); the same for the same seed.
inline std::vector<float> drawn_floats(uint64_t seed, int64_t count) {
  base::Stream stream(seed, base::Purpose::kInit);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = 2.0f * stream.uniform() - 1.0f;
  return values;
}

}  // namespace tri::ops
