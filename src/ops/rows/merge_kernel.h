#pragma once
// Room: ops. Split weights (numeric/split.h) read whole: both parts merged to fp32.
#include <cstddef>
#include <cstdint>

#include "numeric/split.h"

namespace tri::ops {

// dst[i] = the weight of high[i] and element i of `low` (int8, or int16 of bf16+16), with the bits
// of numeric::merge_*. dst overlaps neither.
void merge_weights(numeric::SplitScheme scheme, const uint16_t* high, const void* low, float* dst,
                   size_t n) noexcept;

}  // namespace tri::ops
