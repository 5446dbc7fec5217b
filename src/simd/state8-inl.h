// Room: simd. The 8-bit optimizer state of numeric/state8.h in vectors, with the same bits, for
// whole groups of numeric::kStateGroup values; a short last group goes through a buffer of zeros.
// Decoding is by vector; encoding must see a whole group for its scale, so it takes groups from
// memory, several at a time.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "numeric/state8.h"
#include "simd/pack-inl.h"
#include "simd/random-inl.h"

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

// Lanes(df) values of a group from codes[index] on, with the lanes of its scale. REQUIRES:
// Lanes(df) divides kStateGroup.
template <class DF>
HWY_INLINE hn::Vec<DF> load_first_moment(DF df, const int8_t* codes, hn::Vec<DF> scale,
                                         size_t index) {
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<int8_t, DF> d8;
  const auto code = hn::ConvertTo(df, hn::PromoteTo(di, hn::LoadU(d8, codes + index)));
  const auto y = hn::Div(code, hn::Sub(hn::Set(df, 254.0f), hn::Abs(code)));
  return hn::Mul(y, scale);
}

template <class DF>
HWY_INLINE hn::Vec<DF> load_second_moment(DF df, const uint8_t* codes, hn::Vec<DF> scale,
                                          size_t index) {
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<uint8_t, DF> d8;
  const auto code = hn::ConvertTo(df, hn::PromoteTo(di, hn::LoadU(d8, codes + index)));
  const auto y = hn::Mul(code, hn::Set(df, 1.0f / 255.0f));
  const auto root = hn::Mul(y, scale);
  return hn::Mul(root, root);
}

// The lowest byte of each lane is the nearest integer, from -128 to 127; see nearest() in
// numeric/state8.cpp.
template <class DF>
HWY_INLINE hn::Vec<hn::RebindToSigned<DF>> nearest_byte(DF df, hn::Vec<DF> x) {
  return hn::BitCast(hn::RebindToSigned<DF>(), hn::Add(x, hn::Set(df, 0x1.8p23f)));
}

// Groups whose scales are made together, in the lanes of one or two vectors: the way from a group's
// vectors through one lane to its scale and inverse would be longer than the rest of its encoding.
inline constexpr size_t kGroupsTogether = 8;

// The largest magnitudes of kGroupsTogether groups, as bits, in their order; kVectors * Lanes(di).
template <class DI>
struct GroupMaxima {
  static constexpr size_t kVectors = HWY_MAX(1, kGroupsTogether / hn::MaxLanes(DI()));
  hn::Vec<DI> v[kGroupsTogether];  // the first kVectors of them hold the result
};

template <class DF, class DI = hn::RebindToSigned<DF>>
HWY_INLINE GroupMaxima<DI> group_maxima(DF df, const float* HWY_RESTRICT src, size_t groups) {
  const DI di;
  GroupMaxima<DI> m;
  for (size_t g = 0; g < kGroupsTogether; ++g) {
    m.v[g] = hn::Zero(di);
    if (g >= groups) continue;
    for (size_t i = 0; i < numeric::kStateGroup; i += hn::Lanes(df)) {
      const auto x = hn::LoadU(df, src + g * numeric::kStateGroup + i);
      m.v[g] = hn::Max(m.v[g], hn::BitCast(di, hn::Abs(x)));
    }
  }
  // Each round halves the lanes of a group and puts two vectors into one.
  size_t vectors = kGroupsTogether;
  for (size_t lanes = hn::MaxLanes(di); lanes > 1; lanes /= 2) {
    for (size_t k = 0; k < HWY_MAX(vectors / 2, size_t{1}); ++k) {
      const auto low = m.v[vectors > 1 ? 2 * k : k], high = m.v[vectors > 1 ? 2 * k + 1 : k];
      m.v[k] = hn::Max(hn::ConcatEven(di, high, low), hn::ConcatOdd(di, high, low));
    }
    vectors = HWY_MAX(vectors / 2, size_t{1});
  }
  return m;
}

// numeric::state_scale() in lanes.
template <class DI>
HWY_INLINE hn::Vec<DI> state_scales(DI di, hn::Vec<DI> largest) {
  const auto up = hn::ShiftRight<16>(hn::Add(largest, hn::Set(di, 0xffff)));
  const auto bounded = hn::Min(up, hn::Set(di, 0x7f7f));
  const auto scale = hn::IfThenZeroElse(hn::Lt(largest, hn::Set(di, 0x00800000)), bounded);
  return hn::IfThenElse(hn::Gt(largest, hn::Set(di, 0x7f7fffff)),
                        hn::Set(di, numeric::kPoisonedScale), scale);
}

// Writes the scales of at most kGroupsTogether groups and their inverses, zero where a scale has
// none. Returns false if one of them is poisoned.
template <class DF>
HWY_INLINE bool group_scales(DF df, const float* HWY_RESTRICT src, size_t groups,
                             uint16_t* HWY_RESTRICT scales, float* HWY_RESTRICT inverses) {
  const hn::RebindToSigned<DF> di;
  using Maxima = GroupMaxima<hn::RebindToSigned<DF>>;
  constexpr size_t kPadded = HWY_MAX(kGroupsTogether, hn::MaxLanes(df));
  const Maxima maxima = group_maxima(df, src, groups);
  HWY_ALIGN int32_t wide[kPadded];
  HWY_ALIGN float inverse[kPadded];
  bool finite = true;
  for (size_t k = 0; k < Maxima::kVectors; ++k) {
    const auto scale = state_scales(di, maxima.v[k]);
    const auto poisoned = hn::Eq(scale, hn::Set(di, numeric::kPoisonedScale));
    const auto divides = hn::AndNot(poisoned, hn::Gt(scale, hn::Zero(di)));
    const auto quotient = hn::Div(hn::Set(df, 1.0f), hn::BitCast(df, hn::ShiftLeft<16>(scale)));
    hn::Store(scale, di, wide + k * hn::Lanes(di));
    hn::Store(hn::IfThenElseZero(hn::RebindMask(df, divides), quotient), df,
              inverse + k * hn::Lanes(df));
    finite = finite && hn::AllFalse(di, poisoned);
  }
  for (size_t g = 0; g < groups; ++g) {
    scales[g] = static_cast<uint16_t>(wide[g]);
    inverses[g] = inverse[g];
  }
  return finite;
}

// Encodes groups, kGroupsTogether at a time: code(vector, index) gives the codes of a vector in the
// lowest bytes of its lanes.
template <class DF, class T, class Code>
HWY_INLINE void store_groups(DF df, const float* HWY_RESTRICT src, size_t groups,
                             T* HWY_RESTRICT codes, uint16_t* HWY_RESTRICT scales, Code code) {
  const hn::RebindToSigned<DF> di;
  static_assert(numeric::kStateGroup % (2 * hn::MaxLanes(df)) == 0);
  for (size_t first = 0; first < groups; first += kGroupsTogether) {
    const size_t n = HWY_MIN(groups - first, kGroupsTogether);
    float inverses[kGroupsTogether];
    const bool finite =
        group_scales(df, src + first * numeric::kStateGroup, n, scales + first, inverses);
    for (size_t g = 0; g < n; ++g) {
      const auto inverse = hn::Set(df, inverses[g]);
      const size_t begin = (first + g) * numeric::kStateGroup;
      for (size_t i = begin; i < begin + numeric::kStateGroup; i += 2 * hn::Lanes(df)) {
        const auto a = code(hn::Mul(hn::LoadU(df, src + i), inverse), i);
        const auto b =
            code(hn::Mul(hn::LoadU(df, src + i + hn::Lanes(df)), inverse), i + hn::Lanes(df));
        store_bytes<0>(di, a, b, codes + i);
      }
    }
    if (HWY_LIKELY(finite)) continue;
    for (size_t g = first; g < first + n; ++g)
      if (scales[g] == numeric::kPoisonedScale)
        std::memset(codes + g * numeric::kStateGroup, 0, numeric::kStateGroup);
  }
}

template <class DF>
HWY_INLINE void store_first_moments(DF df, const float* HWY_RESTRICT src, size_t groups,
                                    int8_t* HWY_RESTRICT codes, uint16_t* HWY_RESTRICT scales) {
  store_groups(df, src, groups, codes, scales, [df](hn::Vec<DF> y, size_t) HWY_ATTR {
    const auto companded =
        hn::Div(hn::Mul(y, hn::Set(df, 254.0f)), hn::Add(hn::Set(df, 1.0f), hn::Abs(y)));
    return nearest_byte(df, companded);
  });
}

// From the square roots of the moments; `first`: the index of the first one's noise.
template <class DF>
HWY_INLINE void store_second_moments(DF df, const float* HWY_RESTRICT roots, size_t groups,
                                     uint8_t* HWY_RESTRICT codes, uint16_t* HWY_RESTRICT scales,
                                     numeric::NoiseKey key, uint32_t first) {
  store_groups(df, roots, groups, codes, scales, [=](hn::Vec<DF> y, size_t i) HWY_ATTR {
    const hn::RebindToSigned<DF> di;
    const hn::RebindToUnsigned<DF> du;
    const auto random =
        hn::BitCast(di, hn::ShiftRight<8>(noise(du, key, first + static_cast<uint32_t>(i))));
    const auto dither =
        hn::Add(hn::Mul(hn::ConvertTo(df, random), hn::Set(df, numeric::kDitherStep)),
                hn::Set(df, numeric::kDitherStart));
    // The bits of a positive number are a positive integer, those of zero are zero.
    const auto least = hn::Min(hn::BitCast(di, y), hn::Set(di, 1));
    const auto code = hn::ConvertTo(di, hn::Add(hn::Mul(y, hn::Set(df, 255.0f)), dither));
    return hn::Max(code, least);
  });
}

}  // namespace tri::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
