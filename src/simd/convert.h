#pragma once
// Room: simd. In: arrays of fp32 or of a storage format. Out: the other one. Whole arrays on the
// best SIMD target of the machine, with the bits of numeric/round.h; kernels that can fuse the
// conversion into their own loop use convert-inl.h instead. Nothing here allocates or throws.
#include <cstddef>
#include <cstdint>

#include "numeric/format.h"
#include "numeric/noise.h"

namespace tri::simd {

// How many elements left the range of the format; see numeric::Encoded.
struct ConvertCounts {
  uint64_t overflow = 0;
  uint64_t underflow = 0;
  bool operator==(const ConvertCounts&) const = default;
};

// REQUIRES for all: src and dst do not overlap; elements are aligned to their own size.
void decode(numeric::Format format, const void* src, float* dst, size_t n) noexcept;

// To nearest, by numeric::storage_rounding.
ConvertCounts encode(numeric::Format format, const float* src, void* dst, size_t n) noexcept;

// The noise of element i is numeric::noise(key, first + i), so an array may be converted in pieces.
// REQUIRES: first + n <= 2^32.
ConvertCounts encode_stochastic(numeric::Format format, const float* src, void* dst, size_t n,
                                numeric::NoiseKey key, uint32_t first) noexcept;

}  // namespace tri::simd
