#pragma once
// Room: simd. In: an array of fp32. Out: whether all of it are numbers. One load and two cheap
// operations per vector, for passes that have the values in cache anyway.
#include <cstddef>

namespace tri::simd {

bool all_finite(const float* values, size_t n) noexcept;

}  // namespace tri::simd
