// Room: simd. In: two vectors of int32 lanes. Out: one word or byte of each lane, all of the first
// vector's and then the second's, at an address. Two vectors at a time take half of the steps that
// two single DemoteTo() take.
//
//   store_words<K>(di, a, b, to)   word K of each lane, 0 or 1
//   store_bytes<K>(di, a, b, to)   byte K of each lane, 0 or 1
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

// Per-target include guard.
#if defined(TRI_SIMD_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRI_SIMD_PACK_INL_H_
#undef TRI_SIMD_PACK_INL_H_
#else
#define TRI_SIMD_PACK_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace tri::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Every even or odd piece of `a`, then of `b`.
template <int kOdd, class D>
HWY_INLINE hn::Vec<D> pieces(D d, hn::Vec<D> a, hn::Vec<D> b) {
  if constexpr (kOdd != 0) {
    return hn::ConcatOdd(d, b, a);
  } else {
    return hn::ConcatEven(d, b, a);
  }
}

template <int kWord, class DI>
HWY_INLINE void store_words(DI, hn::Vec<DI> a, hn::Vec<DI> b, uint16_t* to) {
  const hn::Repartition<uint16_t, DI> d16;
  hn::StoreU(pieces<kWord>(d16, hn::BitCast(d16, a), hn::BitCast(d16, b)), d16, to);
}

// T: int8_t or uint8_t.
template <int kByte, class DI, class T>
HWY_INLINE void store_bytes(DI, hn::Vec<DI> a, hn::Vec<DI> b, T* to) {
  const hn::Repartition<uint16_t, DI> d16;
  const auto words = pieces<0>(d16, hn::BitCast(d16, a), hn::BitCast(d16, b));
#if HWY_TARGET == HWY_AVX3
  if constexpr (hn::MaxLanes(d16) == 32) {
    const auto low = kByte == 0 ? words : hn::ShiftRight<8>(words);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi16_epi8(low.raw));
    return;
  }
#endif
  const hn::Repartition<uint8_t, DI> d8;
  const hn::Half<decltype(d8)> half;
  const auto bytes = hn::BitCast(d8, words);
  hn::StoreU(hn::LowerHalf(half, pieces<kByte>(d8, bytes, bytes)), half,
             reinterpret_cast<uint8_t*>(to));
}

}  // namespace tri::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
