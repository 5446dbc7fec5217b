// With intrinsics, as ops/conv2d/pair_simd.cpp: Highway 1.0 has no products of bf16.
#include "base/check.h"
#include "hwy/base.h"
#include "train/machine_limits.h"

#if HWY_ARCH_X86
#include <immintrin.h>
#if HWY_COMPILER_GCC && !HWY_COMPILER_CLANG
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // of gcc's own header, bug 105593
#endif

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
namespace tri::train {

double pair_burst(float* sink) noexcept {
  // As fma_burst(); a unit of four bytes holds two numbers.
  constexpr size_t kSums = 12, kRounds = size_t{1} << 14, kProducts = 32;
  const auto factor = reinterpret_cast<__m512bh>(_mm512_set1_ps(0.5f + 0.0f * *sink));
  const auto term = reinterpret_cast<__m512bh>(_mm512_set1_ps(0.001f));
  __m512 sums[kSums];
  for (size_t i = 0; i < kSums; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  for (size_t round = 0; round < kRounds; ++round)
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, factor, term);
  __m512 all = sums[0];
  for (size_t i = 1; i < kSums; ++i) all = _mm512_add_ps(all, sums[i]);
  *sink = _mm512_cvtss_f32(all);  // all lanes are alike
  return 2.0 * kSums * kRounds * kProducts;
}

}  // namespace tri::train
HWY_POP_ATTRIBUTES

#else
namespace tri::train {
double pair_burst(float*) noexcept {
  TRI_CHECK(false);
  return 0;
}
}  // namespace tri::train
#endif  // HWY_ARCH_X86
