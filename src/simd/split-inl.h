// Room: simd. The split weights of numeric/split.h in vectors, with the same bits: fp32 lanes to a
// 16-bit working weight and 8 or 16 extra bits, and back.
//
//   split_store<S>(df, v, high, low, index)   writes Lanes(df) elements from `index` on
//   split_store_two<S>(df, v, next, ...)      writes 2 * Lanes(df), cheaper than one by one
//   merge_load<S>(df, high, low, index)       reads them as fp32
//   ..._n(..., n)                             n < Lanes(df), touching n elements and no byte more
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "numeric/split.h"
#include "simd/convert-inl.h"
#include "simd/pack-inl.h"

// Per-target include guard.
#if defined(TRI_SIMD_SPLIT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRI_SIMD_SPLIT_INL_H_
#undef TRI_SIMD_SPLIT_INL_H_
#else
#define TRI_SIMD_SPLIT_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace tri::simd::HWY_NAMESPACE {

using numeric::SplitScheme;

// The integer that holds the extra bits.
template <SplitScheme S>
using Extra = std::conditional_t<S == SplitScheme::kBf16Plus16, int16_t, int8_t>;

// A number on the finer grid of S, its sign in the highest bit: the extra bits are the lower half
// (bf16+16) or byte 1, below which anything may be. NaN is quiet, its extra bits are zero.
template <SplitScheme S, class DF>
HWY_INLINE VecI<DF> to_finer_grid(DF df, hn::Vec<DF> v) {
  const hn::RebindToSigned<DF> di;
  const auto bits = hn::BitCast(di, v);
  const auto nan = hn::RebindMask(di, hn::IsNaN(v));
  const auto quiet = hn::And(hn::Or(bits, hn::Set(di, 0x400000)), hn::Set(di, ~0xffff));
  if constexpr (S == SplitScheme::kBf16Plus16) {
    return hn::IfThenElse(nan, quiet, bits);
  } else if constexpr (S == SplitScheme::kBf16Plus8) {
    const auto odd = hn::And(hn::ShiftRight<8>(bits), hn::Set(di, 1));
    const auto rounded = hn::Add(hn::Add(bits, hn::Set(di, 0x7f)), odd);
    return hn::IfThenElse(nan, quiet, rounded);
  } else {
    const auto magnitude = hn::And(bits, hn::Set(di, kMagnitude));
    constexpr const numeric::FormatSpec& s = numeric::kF16Plus8Grid;
    auto code = round_to_even<s.mantissa_bits, s.bias>(df, magnitude);
    code = hn::Min(code, hn::Set(di, 0x7c0000));
    const auto payload = hn::And(hn::ShiftRight<5>(magnitude), hn::Set(di, 0x03ff00));
    code = hn::IfThenElse(nan, hn::Or(payload, hn::Set(di, 0x7e0000)), code);
    return hn::Or(hn::ShiftLeft<8>(code), hn::And(bits, hn::Set(di, ~kMagnitude)));
  }
}

// The working weight is the upper half of this: the upper half of a word of the grid, one more
// where the extra bits are a negative number.
template <class DI>
HWY_INLINE hn::Vec<DI> carried(DI di, hn::Vec<DI> grid) {
  return hn::Add(grid, hn::Set(di, 0x8000));
}

template <SplitScheme S, class DF>
HWY_INLINE void split_store(DF df, hn::Vec<DF> v, uint16_t* high, Extra<S>* low, size_t index) {
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<int16_t, DF> d_high;
  const hn::Rebind<uint16_t, DF> d_code;
  const hn::Rebind<Extra<S>, DF> d_low;
  constexpr int kExtra = 8 * sizeof(Extra<S>);
  const auto grid = to_finer_grid<S>(df, v);
  const auto upper = hn::ShiftRight<16>(carried(di, grid));
  const auto rest = hn::ShiftRight<32 - kExtra>(hn::ShiftLeft<16>(grid));
  hn::StoreU(hn::BitCast(d_code, hn::DemoteTo(d_high, upper)), d_code, high + index);
  hn::StoreU(hn::DemoteTo(d_low, rest), d_low, low + index);
}

// Of two vectors, for neighbouring elements.
template <SplitScheme S, class DF>
HWY_INLINE void split_store_two(DF df, hn::Vec<DF> v, hn::Vec<DF> next, uint16_t* high,
                                Extra<S>* low, size_t index) {
  const hn::RebindToSigned<DF> di;
  const auto a = to_finer_grid<S>(df, v), b = to_finer_grid<S>(df, next);
  store_words<1>(di, carried(di, a), carried(di, b), high + index);
  if constexpr (S == SplitScheme::kBf16Plus16) {
    store_words<0>(di, a, b, reinterpret_cast<uint16_t*>(low + index));
  } else {
    store_bytes<1>(di, a, b, low + index);
  }
}

template <SplitScheme S, class DF>
HWY_INLINE hn::Vec<DF> merge_load(DF df, const uint16_t* high, const Extra<S>* low, size_t index) {
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<uint16_t, DF> d_high;
  const hn::Rebind<Extra<S>, DF> d_low;
  constexpr int kExtra = 8 * sizeof(Extra<S>);
  const auto upper = hn::PromoteTo(di, hn::LoadU(d_high, high + index));
  const auto rest = hn::PromoteTo(di, hn::LoadU(d_low, low + index));
  const auto grid = hn::Add(hn::ShiftLeft<kExtra>(upper), rest);
  if constexpr (S == SplitScheme::kBf16Plus16) {
    return hn::BitCast(df, grid);
  } else if constexpr (S == SplitScheme::kBf16Plus8) {
    return hn::BitCast(df, hn::ShiftLeft<8>(grid));
  } else {
    constexpr const numeric::FormatSpec& s = numeric::kF16Plus8Grid;
    const auto code = hn::And(grid, hn::Set(di, 0x7fffff));
    const auto magnitude = expand<s.exponent_bits, s.mantissa_bits, s.bias, true>(df, code);
    const auto sign = hn::And(hn::ShiftLeft<8>(grid), hn::Set(di, ~kMagnitude));
    return hn::BitCast(df, hn::Or(magnitude, sign));
  }
}

template <SplitScheme S, class DF>
HWY_INLINE void split_store_n(DF df, hn::Vec<DF> v, uint16_t* high, Extra<S>* low, size_t index,
                              size_t n) {
  HWY_ALIGN uint16_t high_edge[hn::MaxLanes(df)];
  HWY_ALIGN Extra<S> low_edge[hn::MaxLanes(df)];
  split_store<S>(df, v, high_edge, low_edge, 0);
  std::memcpy(high + index, high_edge, n * sizeof(high_edge[0]));
  std::memcpy(low + index, low_edge, n * sizeof(low_edge[0]));
}

// The other lanes are zero.
template <SplitScheme S, class DF>
HWY_INLINE hn::Vec<DF> merge_load_n(DF df, const uint16_t* high, const Extra<S>* low, size_t index,
                                    size_t n) {
  HWY_ALIGN uint16_t high_edge[hn::MaxLanes(df)] = {};
  HWY_ALIGN Extra<S> low_edge[hn::MaxLanes(df)] = {};
  std::memcpy(high_edge, high + index, n * sizeof(high_edge[0]));
  std::memcpy(low_edge, low + index, n * sizeof(low_edge[0]));
  return merge_load<S>(df, high_edge, low_edge, 0);
}

}  // namespace tri::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
