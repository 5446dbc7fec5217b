#pragma once
// Room: ops. The mask of dropout on fp32 values.
#include <cmath>
#include <cstdint>

#include "numeric/noise.h"

namespace tri::ops {

// An element is dropped if its 24 highest random bits are below this: as a fraction, below `rate`.
inline uint32_t dropout_threshold(float rate) {
  return static_cast<uint32_t>(std::ceil(rate * 0x1p24f));
}

// values[i] becomes zero where noise(key, first + i) is below the threshold, else grows by `grown`.
struct DropoutRun {
  numeric::NoiseKey key;
  uint32_t first;
  uint32_t threshold;
  float grown;
  float* values;
  int64_t count;
};
void drop(const DropoutRun& run) noexcept;

}  // namespace tri::ops
