// simd/native_bf16_simd.cpp; contract in native_bf16.h. Never throws, allocates or logs. Written
// with intrinsics: Highway 1.0 does not know the instruction. Called on that target only.
#include <bit>

#include "hwy/base.h"
#include "numeric/format.h"
#include "simd/native_bf16.h"

#if HWY_ARCH_X86
#include <immintrin.h>
#if HWY_COMPILER_GCC && !HWY_COMPILER_CLANG
#pragma GCC diagnostic ignored "-Wuninitialized"  // of gcc's own header, bug 105593
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
namespace tri::simd {
namespace {

constexpr size_t kLanes = 16;
constexpr uint32_t kFirstNormal = 0x00800000;

// ExtentOf of convert-inl.h.
struct Extent {
  __m512i largest, least;

  HWY_INLINE void add(__m512 v) {
    const __m512i magnitude =
        _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff));
    largest = _mm512_max_epi32(largest, magnitude);
    least = _mm512_min_epu32(least, _mm512_sub_epi32(magnitude, _mm512_set1_epi32(1)));
  }
};

}  // namespace

bool encode_bf16_natively(const float* src, size_t src_stride, uint16_t* dst, size_t dst_stride,
                          size_t rows, size_t n, float* most) noexcept {
  Extent seen{_mm512_setzero_si512(), _mm512_set1_epi32(-1)};
  for (size_t row = 0; row < rows; ++row, src += src_stride, dst += dst_stride) {
    size_t i = 0;
    for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
      const __m512 a = _mm512_loadu_ps(src + i), b = _mm512_loadu_ps(src + i + kLanes);
      seen.add(a);
      seen.add(b);
      _mm512_storeu_si512(dst + i, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a)));
    }
    for (; i < n; i += kLanes) {
      const auto some = n - i >= kLanes ? static_cast<__mmask16>(0xffff)
                                        : static_cast<__mmask16>((1u << (n - i)) - 1);
      const __m512 a = _mm512_maskz_loadu_ps(some, src + i);
      seen.add(a);
      _mm256_mask_storeu_epi16(dst + i, some, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(a)));
    }
  }
  *most = std::bit_cast<float>(_mm512_reduce_max_epi32(seen.largest));  // NaN compares as false
  const uint32_t least = _mm512_reduce_min_epu32(seen.least) + 1;       // 0: zeros only
  return *most < numeric::overflow_threshold(numeric::Format::kBf16) &&
         (least == 0 || least >= kFirstNormal);
}

}  // namespace tri::simd
HWY_POP_ATTRIBUTES

#else  // no such target
#include "base/check.h"

namespace tri::simd {
bool encode_bf16_natively(const float*, size_t, uint16_t*, size_t, size_t, size_t,
                          float*) noexcept {
  TRI_CHECK(false);
  return false;
}
}  // namespace tri::simd
#endif  // HWY_ARCH_X86
