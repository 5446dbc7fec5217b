// Room: simd. x 2^n, the fraction of x and fractional powers of two, as single instructions of
// AVX-512, the last of AVX2 too, for vectors of any length; Highway 1.0 does not offer them.
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

// 2^(i / 16) for the i in the low four bits of each lane.
alignas(64) inline constexpr float kSixteenths[16] = {
    0x1p+0f,        0x1.0b5586p+0f, 0x1.172b84p+0f, 0x1.2387a6p+0f, 0x1.306fep+0f,  0x1.3dea64p+0f,
    0x1.4bfdaep+0f, 0x1.5ab07ep+0f, 0x1.6a09e6p+0f, 0x1.7a1148p+0f, 0x1.8ace54p+0f, 0x1.9c4918p+0f,
    0x1.ae89fap+0f, 0x1.c199bep+0f, 0x1.d5818ep+0f, 0x1.ea4afap+0f};
HWY_INLINE hn::Vec512<float> power_of_sixteenths(hn::Vec512<float> i) {
  return hn::Vec512<float>{
      _mm512_permutexvar_ps(_mm512_castps_si512(i.raw), _mm512_load_ps(kSixteenths))};
}
HWY_INLINE hn::Vec256<float> power_of_sixteenths(hn::Vec256<float> i) {
  return hn::Vec256<float>{_mm256_permutex2var_ps(
      _mm256_load_ps(kSixteenths), _mm256_castps_si256(i.raw), _mm256_load_ps(kSixteenths + 8))};
}
template <size_t kLanes>
HWY_INLINE hn::Vec128<float, kLanes> power_of_sixteenths(hn::Vec128<float, kLanes> i) {
  const hn::Vec256<float> wide{_mm256_castps128_ps256(i.raw)};
  return hn::Vec128<float, kLanes>{_mm256_castps256_ps128(power_of_sixteenths(wide).raw)};
}

}  // namespace tri::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#elif HWY_TARGET == HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace tri::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 2^(i / 8) for the i in the low three bits of each lane.
alignas(32) inline constexpr float kEighths[8] = {0x1p+0f,        0x1.172b84p+0f, 0x1.306fep+0f,
                                                  0x1.4bfdaep+0f, 0x1.6a09e6p+0f, 0x1.8ace54p+0f,
                                                  0x1.ae89fap+0f, 0x1.d5818ep+0f};
HWY_INLINE hn::Vec256<float> power_of_eighths(hn::Vec256<float> i) {
  return hn::Vec256<float>{
      _mm256_permutevar8x32_ps(_mm256_load_ps(kEighths), _mm256_castps_si256(i.raw))};
}
template <size_t kLanes>
HWY_INLINE hn::Vec128<float, kLanes> power_of_eighths(hn::Vec128<float, kLanes> i) {
  const hn::Vec256<float> wide{_mm256_castps128_ps256(i.raw)};
  return hn::Vec128<float, kLanes>{_mm256_castps256_ps128(power_of_eighths(wide).raw)};
}

}  // namespace tri::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#endif  // per-target include guard
