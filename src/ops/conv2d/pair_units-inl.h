#pragma once
// Room: ops. How 16 numbers of two operands become 16 units (Note [Units] in pair_kernel.h) and go
// to panels, with intrinsics. For kernels on the target that multiplies bf16.
#include <cstdint>

#include "hwy/base.h"
#include "ops/conv2d/panel_kernel.h"

#if HWY_ARCH_X86
#include <immintrin.h>
#if HWY_COMPILER_GCC && !HWY_COMPILER_CLANG
#pragma GCC diagnostic ignored "-Wuninitialized"  // of gcc's own header, bug 105593
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
namespace tri::ops {

// 16 numbers of `first` in the low halves of 16 units, those of `second` in the high ones, rounded.
HWY_INLINE __m512i units_of(__m512 first, __m512 second) {
  alignas(64) static constexpr uint16_t kInTurn[] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                     21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                     11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kInTurn),
                                  reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first)));
}

// 16 units go to one panel of 16, or to two of 8 of which the second may not be there.
template <int kWidth>
HWY_INLINE void store_units(__m512i units, int64_t panel_stride, bool second, float* to) {
  if constexpr (kWidth == kPanel) {
    _mm512_storeu_si512(to, units);
  } else {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_castsi512_si256(units));
    if (second)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + panel_stride),
                          _mm512_extracti64x4_epi64(units, 1));
  }
}

}  // namespace tri::ops
HWY_POP_ATTRIBUTES
#endif  // HWY_ARCH_X86
