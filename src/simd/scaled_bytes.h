#pragma once
// Room: simd. In: bytes, and a factor and an addend for each. Out: fp32.
#include <cstddef>
#include <cstdint>

namespace tri::simd {

// dst[i] = bytes[i] * scale[i] + shift[i], each operation rounded.
void scale_bytes(const uint8_t* bytes, size_t n, const float* scale, const float* shift,
                 float* dst) noexcept;

}  // namespace tri::simd
