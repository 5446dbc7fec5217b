#pragma once
// Room: ops. Where the sums of products of bf16 go, a row of one or two panels at a time. For
// kernels on the targets that make such products.
#include <cstdint>

#include "hwy/base.h"
#include "ops/conv2d/pair_units-inl.h"
#include "ops/rows/rows.h"
#include "simd/convert.h"

#if HWY_ARCH_X86
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
namespace tri::ops {

// As they are, into scratch or a tensor of fp32.
struct WideResults {
  float* out;

  template <int kPanels>
  HWY_INLINE void store(const __m512 (&sums)[kPanels], int64_t at) const {
    for (int v = 0; v < kPanels; ++v) _mm512_storeu_ps(out + at + v * kPanel, sums[v]);
  }
  WideResults behind(int64_t panels) const { return {out + panels * kPanel}; }
};

// Or rounded to bf16, into their tensor.
struct NarrowResults {
  uint16_t* out;
  int64_t channels;  // that the tensor has from here on, of these panels and those behind
  StoreCounts* lost;

  // Of a row in which something may be lost, and of subnormal numbers, which the instruction would
  // take for zeros: with the bits and the counts of store_rows().
  HWY_NOINLINE void store_counted(const float* sums, int64_t at, int64_t count) const {
    const simd::ConvertCounts counts =
        simd::encode(numeric::Format::kBf16, sums, out + at, static_cast<size_t>(count));
    lost->overflow += counts.overflow;
    lost->underflow += counts.underflow;
  }

  template <int kPanels>
  HWY_INLINE void store(const __m512 (&sums)[kPanels], int64_t at) const {
    const int64_t count = channels < kPanels * kPanel ? channels : kPanels * kPanel;
    const auto there = static_cast<__mmask32>((uint64_t{1} << count) - 1);
    const __m512 second = kPanels == 2 ? sums[kPanels - 1] : _mm512_setzero_ps();
    const auto codes = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, sums[0]));
    const __m512i magnitude = _mm512_set1_epi16(0x7fff), infinity = _mm512_set1_epi16(0x7f80);
    const __mmask32 special =
        _mm512_mask_cmpeq_epi16_mask(there, _mm512_and_si512(codes, infinity), infinity);
    __mmask32 zeros = _mm512_mask_testn_epi16_mask(there, codes, magnitude);
    if (zeros != 0) {
      const __mmask16 low = _mm512_cmp_ps_mask(sums[0], _mm512_setzero_ps(), _CMP_NEQ_UQ);
      const __mmask16 high = _mm512_cmp_ps_mask(second, _mm512_setzero_ps(), _CMP_NEQ_UQ);
      zeros &= _mm512_kunpackw(high, low);
    }
    if ((special | zeros) != 0) {
      alignas(64) float row[2 * kPanel];
      _mm512_store_ps(row, sums[0]);
      _mm512_store_ps(row + kPanel, second);
      return store_counted(row, at, count);
    }
    if constexpr (kPanels == 2)
      _mm512_mask_storeu_epi16(out + at, there, codes);
    else
      _mm256_mask_storeu_epi16(out + at, static_cast<__mmask16>(there),
                               _mm512_castsi512_si256(codes));
  }
  NarrowResults behind(int64_t panels) const {
    return {out + panels * kPanel, channels - panels * kPanel, lost};
  }
};

}  // namespace tri::ops
HWY_POP_ATTRIBUTES
#endif  // HWY_ARCH_X86
