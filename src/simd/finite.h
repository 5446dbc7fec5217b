#pragma once
// Room: simd. In: an array of fp32. Out: whether all of it are numbers, and how large. One load and
// two cheap operations per vector, for passes that have the values in cache anyway.
#include <cstddef>
#include <cstdint>

namespace tri::simd {

bool all_finite(const float* values, size_t n) noexcept;

// The bits of the largest magnitude; those of NaN lie above infinity's.
uint32_t largest_magnitude(const float* values, size_t n) noexcept;

}  // namespace tri::simd
