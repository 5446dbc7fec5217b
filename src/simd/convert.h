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
  ConvertCounts& operator+=(const ConvertCounts& other) {
    overflow += other.overflow;
    underflow += other.underflow;
    return *this;
  }
};

// REQUIRES for all: src and dst do not overlap; elements are aligned to their own size.
void decode(numeric::Format format, const void* src, float* dst, size_t n) noexcept;

// To nearest, by numeric::storage_rounding.
ConvertCounts encode(numeric::Format format, const float* src, void* dst, size_t n) noexcept;

// As encode() of src[i] * scale and decode() times `factor`, both powers of two.
struct ScaledCounts {
  ConvertCounts lost;
  float max_abs = 0;  // of src; NaN is left out
  ScaledCounts& operator+=(const ScaledCounts& other) {
    lost += other.lost;
    max_abs = other.max_abs > max_abs ? other.max_abs : max_abs;
    return *this;
  }
};
// `rows` rows of n numbers each, strides in elements.
ScaledCounts encode_rows(numeric::Format format, const float* src, size_t src_stride, void* dst,
                         size_t dst_stride, size_t rows, size_t n, float scale) noexcept;
void decode_scaled(numeric::Format format, const void* src, float* dst, size_t n,
                   float factor) noexcept;

// dst[i] = decode(encode(src[i])), to nearest. dst may be src. Returns how many overflowed.
uint64_t round_to(numeric::Format format, const float* src, float* dst, size_t n) noexcept;

// The noise of element i is numeric::noise(key, first + i), so an array may be converted in pieces.
// REQUIRES: first + n <= 2^32.
ConvertCounts encode_stochastic(numeric::Format format, const float* src, void* dst, size_t n,
                                numeric::NoiseKey key, uint32_t first) noexcept;

}  // namespace tri::simd
