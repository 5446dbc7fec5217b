// Room: simd. x 2^n and the fraction of x, as single instructions: AVX-512 only, for vectors of any
// length, which Highway 1.0 does not offer.
#include <cstddef>

#include "hwy/highway.h"

// Per-target include guard.
#if defined(TRI_SIMD_POWERS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRI_SIMD_POWERS_INL_H_
#undef TRI_SIMD_POWERS_INL_H_
#else
#define TRI_SIMD_POWERS_INL_H_
#endif

#if HWY_TARGET <= HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace tri::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// x 2^floor(n), rounded once, whatever the size of n.
HWY_INLINE hn::Vec512<float> scale_by(hn::Vec512<float> x, hn::Vec512<float> n) {
  return hn::Vec512<float>{_mm512_scalef_ps(x.raw, n.raw)};
}
HWY_INLINE hn::Vec256<float> scale_by(hn::Vec256<float> x, hn::Vec256<float> n) {
  return hn::Vec256<float>{_mm256_scalef_ps(x.raw, n.raw)};
}
template <size_t kLanes>
HWY_INLINE hn::Vec128<float, kLanes> scale_by(hn::Vec128<float, kLanes> x,
                                              hn::Vec128<float, kLanes> n) {
  return hn::Vec128<float, kLanes>{_mm_scalef_ps(x.raw, n.raw)};
}

// x - floor(x); 0 of an infinity.
inline constexpr int kToFloor = 1;
HWY_INLINE hn::Vec512<float> fraction(hn::Vec512<float> x) {
  return hn::Vec512<float>{_mm512_reduce_ps(x.raw, kToFloor)};
}
HWY_INLINE hn::Vec256<float> fraction(hn::Vec256<float> x) {
  return hn::Vec256<float>{_mm256_reduce_ps(x.raw, kToFloor)};
}
template <size_t kLanes>
HWY_INLINE hn::Vec128<float, kLanes> fraction(hn::Vec128<float, kLanes> x) {
  return hn::Vec128<float, kLanes>{_mm_reduce_ps(x.raw, kToFloor)};
}

}  // namespace tri::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#endif  // per-target include guard
