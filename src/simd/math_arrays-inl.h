// Room: simd. The functions of math-inl.h over whole arrays, for its test and its bench.
#include <cstddef>

#include "hwy/highway.h"
#include "simd/math-inl.h"

// Per-target include guard.
#if defined(TRI_SIMD_MATH_ARRAYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRI_SIMD_MATH_ARRAYS_INL_H_
#undef TRI_SIMD_MATH_ARRAYS_INL_H_
#else
#define TRI_SIMD_MATH_ARRAYS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace tri::simd::HWY_NAMESPACE {
namespace {

// n is a multiple of four of any vector.
void exp_array(const float* src, float* dst, size_t n) {
  const hn::ScalableTag<float> df;
  for (size_t i = 0; i < n; i += hn::Lanes(df))
    hn::StoreU(exp(df, hn::LoadU(df, src + i)), df, dst + i);
}

#define TRI_MATH_ARRAY(name, function)                                               \
  void name##_array(const float* src, float* dst, size_t n) {                        \
    using DF = hn::ScalableTag<float>;                                               \
    const DF df;                                                                     \
    for (size_t i = 0; i < n;) {                                                     \
      Vectors<DF, 4> x;                                                              \
      for (int v = 0; v < 4; ++v)                                                    \
        x[v] = hn::LoadU(df, src + i + static_cast<size_t>(v) * hn::Lanes(df));      \
      x = function(df, x);                                                           \
      for (int v = 0; v < 4; ++v, i += hn::Lanes(df)) hn::StoreU(x[v], df, dst + i); \
    }                                                                                \
  }
TRI_MATH_ARRAY(sigmoid, sigmoid)
TRI_MATH_ARRAY(silu, silu)
TRI_MATH_ARRAY(silu_derivative, silu_derivative)
TRI_MATH_ARRAY(half_sigmoid, sigmoid<Accuracy::kOfHalf>)
TRI_MATH_ARRAY(half_silu, silu<Accuracy::kOfHalf>)
TRI_MATH_ARRAY(half_silu_derivative, silu_derivative<Accuracy::kOfHalf>)
#undef TRI_MATH_ARRAY

// The values; the derivatives follow them.
#define TRI_MATH_PAIR_ARRAY(name, accuracy)                                     \
  void name##_array(const float* src, float* dst, size_t n) {                   \
    using DF = hn::ScalableTag<float>;                                          \
    const DF df;                                                                \
    for (size_t i = 0; i < n;) {                                                \
      Vectors<DF, 4> x;                                                         \
      for (int v = 0; v < 4; ++v)                                               \
        x[v] = hn::LoadU(df, src + i + static_cast<size_t>(v) * hn::Lanes(df)); \
      const Vectors<DF, 4> slope = silu_with_derivative<accuracy>(df, x);       \
      for (int v = 0; v < 4; ++v, i += hn::Lanes(df)) {                         \
        hn::StoreU(x[v], df, dst + i);                                          \
        hn::StoreU(slope[v], df, dst + n + i);                                  \
      }                                                                         \
    }                                                                           \
  }
TRI_MATH_PAIR_ARRAY(silu_pair, Accuracy::kFull)
TRI_MATH_PAIR_ARRAY(half_silu_pair, Accuracy::kOfHalf)
#undef TRI_MATH_PAIR_ARRAY

}  // namespace
}  // namespace tri::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
