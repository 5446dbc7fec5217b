// Room: simd. The 8-bit optimizer state of numeric/state8.h in vectors, with the same bits, for
// whole groups of numeric::kStateGroup values; a short last group goes through a buffer of zeros.
// Decoding is by vector, so an update needs no buffer of fp32 moments; encoding must see the whole
// group for its scale, so it takes the group from memory.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "numeric/state8.h"

// Per-target include guard.
#if defined(TRI_SIMD_STATE8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRI_SIMD_STATE8_INL_H_
#undef TRI_SIMD_STATE8_INL_H_
#else
#define TRI_SIMD_STATE8_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace tri::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class DF>
HWY_INLINE hn::Vec<DF> state_scale_lanes(DF df, uint16_t scale) {
  const hn::RebindToUnsigned<DF> du;
  return hn::BitCast(df, hn::Set(du, uint32_t{scale} << 16));
}

// Lanes(df) values of a group from codes[index] on. REQUIRES: Lanes(df) divides kStateGroup.
template <class DF>
HWY_INLINE hn::Vec<DF> load_first_moment(DF df, const int8_t* codes, uint16_t scale, size_t index) {
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<int8_t, DF> d8;
  const auto code = hn::ConvertTo(df, hn::PromoteTo(di, hn::LoadU(d8, codes + index)));
  const auto companded = hn::Mul(code, hn::Set(df, 1.0f / 127.0f));
  const auto y = hn::Div(companded, hn::Sub(hn::Set(df, 2.0f), hn::Abs(companded)));
  return hn::Mul(y, state_scale_lanes(df, scale));
}

template <class DF>
HWY_INLINE hn::Vec<DF> load_second_moment(DF df, const uint8_t* codes, uint16_t scale,
                                          size_t index) {
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<uint8_t, DF> d8;
  const auto code = hn::ConvertTo(df, hn::PromoteTo(di, hn::LoadU(d8, codes + index)));
  const auto y = hn::Mul(code, hn::Set(df, 1.0f / 255.0f));
  const auto root = hn::Mul(y, state_scale_lanes(df, scale));
  return hn::Mul(root, root);
}

// Scale of a group whose magnitudes were folded into `largest`, as fp32 bits, lane by lane.
template <class DF>
HWY_INLINE uint16_t group_scale(DF df, hn::Vec<hn::RebindToSigned<DF>> largest) {
  const hn::RebindToSigned<DF> di;
  (void)df;
  return numeric::state_scale(static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, largest))));
}

// To the nearest integer, as int32 lanes; see nearest() in numeric/state8.cpp.
template <class DF>
HWY_INLINE hn::Vec<hn::RebindToSigned<DF>> nearest_int(DF df, hn::Vec<DF> x) {
  const hn::RebindToSigned<DF> di;
  const auto magic = hn::Set(df, 0x1.8p23f);
  return hn::Sub(hn::BitCast(di, hn::Add(x, magic)), hn::BitCast(di, magic));
}

// Encodes src[0 .. 32) and returns the scale.
template <class DF>
HWY_INLINE uint16_t store_first_moment(DF df, const float* src, int8_t* codes) {
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<int8_t, DF> d8;
  auto largest = hn::Zero(di);
  for (size_t i = 0; i < numeric::kStateGroup; i += hn::Lanes(df)) {
    largest = hn::Max(largest, hn::BitCast(di, hn::Abs(hn::LoadU(df, src + i))));
  }
  const uint16_t scale = group_scale(df, largest);
  if (!numeric::scale_divides(scale)) {
    std::memset(codes, 0, numeric::kStateGroup);
    return scale;
  }
  const auto divisor = state_scale_lanes(df, scale);
  for (size_t i = 0; i < numeric::kStateGroup; i += hn::Lanes(df)) {
    const auto y = hn::Div(hn::LoadU(df, src + i), divisor);
    const auto companded = hn::Div(hn::Add(y, y), hn::Add(hn::Set(df, 1.0f), hn::Abs(y)));
    const auto code = nearest_int(df, hn::Mul(companded, hn::Set(df, 127.0f)));
    hn::StoreU(hn::DemoteTo(d8, code), d8, codes + i);
  }
  return scale;
}

template <class DF>
HWY_INLINE uint16_t store_second_moment(DF df, const float* src, uint8_t* codes) {
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<uint8_t, DF> d8;
  auto largest = hn::Zero(di);
  for (size_t i = 0; i < numeric::kStateGroup; i += hn::Lanes(df)) {
    largest = hn::Max(largest, hn::BitCast(di, hn::Abs(hn::Sqrt(hn::LoadU(df, src + i)))));
  }
  const uint16_t scale = group_scale(df, largest);
  if (!numeric::scale_divides(scale)) {
    std::memset(codes, 0, numeric::kStateGroup);
    return scale;
  }
  const auto divisor = state_scale_lanes(df, scale);
  for (size_t i = 0; i < numeric::kStateGroup; i += hn::Lanes(df)) {
    const auto y = hn::Div(hn::Sqrt(hn::LoadU(df, src + i)), divisor);
    const auto code = nearest_int(df, hn::Mul(y, hn::Set(df, 255.0f)));
    const auto positive = hn::VecFromMask(di, hn::RebindMask(di, hn::Gt(y, hn::Zero(df))));
    const auto least = hn::And(positive, hn::Set(di, 1));
    hn::StoreU(hn::DemoteTo(d8, hn::Max(code, least)), d8, codes + i);
  }
  return scale;
}

}  // namespace tri::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
