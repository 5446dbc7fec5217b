#pragma once
// Room: simd. Storing bf16 by the processor's own instruction, on the target kBf16Target
// (target.h).
#include <cstddef>
#include <cstdint>

namespace tri::simd {

// As encode_rows() of convert.h, where nothing is lost and no number is subnormal: the instruction
// would take those for zeros. False: there are some, and dst holds nothing of use. `most`: the
// largest magnitude. REQUIRES: multiplies_bf16().
bool encode_bf16_natively(const float* src, size_t src_stride, uint16_t* dst, size_t dst_stride,
                          size_t rows, size_t n, float* most) noexcept;

}  // namespace tri::simd
