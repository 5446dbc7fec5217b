// Room: simd. The 8-bit optimizer state of numeric/state8.h in vectors, with the same bits, for
// whole groups of numeric::kStateGroup values; a short last group goes through a buffer of zeros.
// Decoding is by vector; encoding must see a whole group for its scale, so it takes groups from
// memory, several at a time: the scales of all come first, because the way from a group's vectors
// to its scale is long but can overlap with that of the next.
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
  const auto y = hn::Div(code, hn::Sub(hn::Set(df, 254.0f), hn::Abs(code)));
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

// To the nearest integer, as int32 lanes; see nearest() in numeric/state8.cpp.
template <class DF>
HWY_INLINE hn::Vec<hn::RebindToSigned<DF>> nearest_int(DF df, hn::Vec<DF> x) {
  const hn::RebindToSigned<DF> di;
  const auto magic = hn::Set(df, 0x1.8p23f);
  return hn::Sub(hn::BitCast(di, hn::Add(x, magic)), hn::BitCast(di, magic));
}

// The scale of each group from src on, by its largest magnitude.
template <class DF>
HWY_INLINE void group_scales(DF df, const float* HWY_RESTRICT src, size_t groups,
                             uint16_t* HWY_RESTRICT scales) {
  const hn::RebindToSigned<DF> di;
  for (size_t g = 0; g < groups; ++g, src += numeric::kStateGroup) {
    auto largest = hn::Zero(di);
    for (size_t i = 0; i < numeric::kStateGroup; i += hn::Lanes(df))
      largest = hn::Max(largest, hn::BitCast(di, hn::Abs(hn::LoadU(df, src + i))));
    scales[g] =
        numeric::state_scale(static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, largest))));
  }
}

// Encodes `groups` groups.
template <class DF>
HWY_INLINE void store_first_moments(DF df, const float* HWY_RESTRICT src, size_t groups,
                                    int8_t* HWY_RESTRICT codes, uint16_t* HWY_RESTRICT scales) {
  const hn::Rebind<int8_t, DF> d8;
  group_scales(df, src, groups, scales);
  for (size_t g = 0; g < groups; ++g) {
    const size_t at = g * numeric::kStateGroup;
    if (!numeric::scale_divides(scales[g])) {
      std::memset(codes + at, 0, numeric::kStateGroup);
      continue;
    }
    const auto inverse = hn::Set(df, numeric::inverse_scale(scales[g]));
    for (size_t i = at; i < at + numeric::kStateGroup; i += hn::Lanes(df)) {
      const auto y = hn::Mul(hn::LoadU(df, src + i), inverse);
      const auto companded =
          hn::Div(hn::Mul(y, hn::Set(df, 254.0f)), hn::Add(hn::Set(df, 1.0f), hn::Abs(y)));
      hn::StoreU(hn::DemoteTo(d8, nearest_int(df, companded)), d8, codes + i);
    }
  }
}

// From the square roots of the moments.
template <class DF>
HWY_INLINE void store_second_moments(DF df, const float* HWY_RESTRICT roots, size_t groups,
                                     uint8_t* HWY_RESTRICT codes, uint16_t* HWY_RESTRICT scales) {
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<uint8_t, DF> d8;
  group_scales(df, roots, groups, scales);
  for (size_t g = 0; g < groups; ++g) {
    const size_t at = g * numeric::kStateGroup;
    if (!numeric::scale_divides(scales[g])) {
      std::memset(codes + at, 0, numeric::kStateGroup);
      continue;
    }
    const auto inverse = hn::Set(df, numeric::inverse_scale(scales[g]));
    for (size_t i = at; i < at + numeric::kStateGroup; i += hn::Lanes(df)) {
      const auto y = hn::Mul(hn::LoadU(df, roots + i), inverse);
      const auto code = nearest_int(df, hn::Mul(y, hn::Set(df, 255.0f)));
      const auto positive = hn::VecFromMask(di, hn::RebindMask(di, hn::Gt(y, hn::Zero(df))));
      const auto least = hn::And(positive, hn::Set(di, 1));
      hn::StoreU(hn::DemoteTo(d8, hn::Max(code, least)), d8, codes + i);
    }
  }
}

}  // namespace tri::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
