// Room: simd. In: two vectors of int32 lanes. Out: their values as 16 or 8 bits each, in order, at
// an address. Packing two at a time takes half of the steps that two single DemoteTo() take.
//
//   store_int16(di, a, b, to)   REQUIRES: values fit int16 (the bits are those of a uint16 as well)
//   store_int8(di, a, b, to)    int8_t or uint8_t; values are clamped to it
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

// x86 packs block of 128 bits by block: a quarter of a block's worth of `a`, one of `b`, and so on.
// All of `a` comes first again when even pieces go before odd ones; pieces of kWords 32-bit lanes.
template <size_t kWords, class D32>
HWY_INLINE hn::Vec<D32> even_pieces_first(D32 d, hn::Vec<D32> v) {
  constexpr size_t kPieces = hn::MaxLanes(d) / kWords;
  if constexpr (kPieces <= 2) return v;
  HWY_ALIGN int32_t source[hn::MaxLanes(d)];
  for (size_t lane = 0; lane < hn::MaxLanes(d); ++lane) {
    const size_t piece = lane / kWords;
    const size_t from = piece < kPieces / 2 ? 2 * piece : 2 * (piece - kPieces / 2) + 1;
    source[lane] = static_cast<int32_t>(from * kWords + lane % kWords);
  }
  return hn::TableLookupLanes(v, hn::SetTableIndices(d, source));
}

template <class DI>
HWY_INLINE void store_int16(DI di, hn::Vec<DI> a, hn::Vec<DI> b, uint16_t* to) {
#if HWY_ARCH_X86
  const hn::Repartition<int16_t, DI> d16;
  const auto packed = hn::BitCast(di, hn::ReorderDemote2To(d16, a, b));
  const hn::Repartition<uint16_t, DI> du16;
  hn::StoreU(hn::BitCast(du16, even_pieces_first<2>(di, packed)), du16, to);
#else
  const hn::Rebind<int16_t, DI> d16;
  const hn::Rebind<uint16_t, DI> du16;
  hn::StoreU(hn::BitCast(du16, hn::DemoteTo(d16, a)), du16, to);
  hn::StoreU(hn::BitCast(du16, hn::DemoteTo(d16, b)), du16, to + hn::Lanes(di));
#endif
}

template <class DI, class T>
HWY_INLINE void store_int8([[maybe_unused]] DI di, hn::Vec<DI> a, hn::Vec<DI> b, T* to) {
#if HWY_ARCH_X86
  const hn::Repartition<int16_t, DI> d16;
  const hn::Rebind<T, decltype(d16)> d8;
  const hn::Repartition<int32_t, decltype(d8)> words;
  const auto packed = hn::BitCast(words, hn::DemoteTo(d8, hn::ReorderDemote2To(d16, a, b)));
  hn::StoreU(hn::BitCast(d8, even_pieces_first<1>(words, packed)), d8, to);
#else
  const hn::Rebind<T, DI> d8;
  hn::StoreU(hn::DemoteTo(d8, a), d8, to);
  hn::StoreU(hn::DemoteTo(d8, b), d8, to + hn::Lanes(di));
#endif
}

}  // namespace tri::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
