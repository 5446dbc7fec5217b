// Room: simd. In: a key and the index of the first lane. Out: one random word per lane, the same
// words as numeric::noise whatever the vector width.
#include <cstdint>

#include "hwy/highway.h"
#include "numeric/noise.h"

// Per-target include guard.
#if defined(TRI_SIMD_RANDOM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRI_SIMD_RANDOM_INL_H_
#undef TRI_SIMD_RANDOM_INL_H_
#else
#define TRI_SIMD_RANDOM_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace tri::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Lane l holds numeric::noise(key, index + l). `du` is a tag of uint32_t.
template <class DU>
HWY_INLINE hn::Vec<DU> noise(DU du, numeric::NoiseKey key, uint32_t index) {
  // Highway 1.0 makes an Iota that is not constant in memory, lane by lane.
  auto x = hn::Add(hn::Iota(du, 0), hn::Set(du, index + key.first));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(du, 0x7feb352du));
  x = hn::Add(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(du, key.second));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(du, 0x846ca68bu));
  return hn::Xor(x, hn::ShiftRight<16>(x));
}

}  // namespace tri::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
