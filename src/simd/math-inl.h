// Room: simd. In: vectors of fp32 lanes. Out: exp, sigmoid, silu or its derivative of each. One
// algorithm on all targets (but for exp within the last three on AVX-512); where the target has no
// FMA, MulAdd rounds twice, and last bits differ.
//
//                       Accuracy::kFull                            Accuracy::kOfHalf
//   exp(x)              1.5 ulp, subnormal results included; inf above 88.72, 0 below -103.98
//   sigmoid(x)          3 ulp; subnormal below -87.33, 0 below -88.38  relative error below 2^-17
//   silu(x)             4 ulp = x sigmoid(x); 0 below -88.38           relative error below 2^-17
//   silu_derivative(x)  absolute error below 2^-21 (it crosses zero at -1.278)    below 2^-16
// Relative errors are of results from 2^-126 on. NaN gives NaN, and no other input does, infinities
// included.
#include <cstdint>

#include "hwy/highway.h"
#include "simd/powers-inl.h"

// Per-target include guard.
#if defined(TRI_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRI_SIMD_MATH_INL_H_
#undef TRI_SIMD_MATH_INL_H_
#else
#define TRI_SIMD_MATH_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace tri::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Note [Vectors side by side]. These are long chains of dependent operations, and a processor looks
// ahead over a few chains only. The functions therefore take kN vectors (1 by default) and go
// through them step by step: with four of them silu costs a fifth less.
template <class DF, int kN>
struct Vectors {
  using V = hn::Vec<DF>;
  V v[kN];
  HWY_INLINE V& operator[](int i) { return v[i]; }
  HWY_INLINE const V& operator[](int i) const { return v[i]; }
};

// x = n ln 2 + r, |r| <= ln 2 / 2: power = e^r, and n sits in the low bits of `shifted`.
template <class DF, int kN>
struct ReducedExp {
  Vectors<DF, kN> power, shifted;
};

inline constexpr float kRoundToInt = 0x1.8p23f;  // x + this has an ulp of 1

// ln 2 in two parts, the first so short that n times it is exact without FMA as well. e^r as
// 1 + r + r^2 q(r), where q is the minimax polynomial of degree 4 for the relative error of the
// whole: 2^-28. REQUIRES: |x| < 2^15.
template <class DF, int kN>
HWY_INLINE ReducedExp<DF, kN> reduce_exp(DF df, const Vectors<DF, kN>& x) {
  constexpr float kCoefficients[] = {0x1.123a2p-7f,  0x1.5558f2p-5f, 0x1.555492p-3f,
                                     0x1.fffffcp-2f, 1.0f,           1.0f};
  const auto magic = hn::Set(df, kRoundToInt);
  ReducedExp<DF, kN> e;
  Vectors<DF, kN> n, r;
  for (int i = 0; i < kN; ++i) e.shifted[i] = hn::MulAdd(x[i], hn::Set(df, 0x1.715476p+0f), magic);
  for (int i = 0; i < kN; ++i) n[i] = hn::Sub(e.shifted[i], magic);
  for (int i = 0; i < kN; ++i) r[i] = hn::NegMulAdd(n[i], hn::Set(df, 0x1.63p-1f), x[i]);
  for (int i = 0; i < kN; ++i) r[i] = hn::NegMulAdd(n[i], hn::Set(df, -0x1.bd0106p-13f), r[i]);
  for (int i = 0; i < kN; ++i) e.power[i] = hn::Set(df, 0x1.6a23cap-10f);
  for (const float coefficient : kCoefficients)
    for (int i = 0; i < kN; ++i)
      e.power[i] = hn::MulAdd(r[i], e.power[i], hn::Set(df, coefficient));
  return e;
}

// 2^n for the n in the low bits of each lane, -126 <= n <= 128: the last one is inf.
template <class DF>
HWY_INLINE hn::Vec<DF> exponent_from(DF df, hn::Vec<hn::RebindToSigned<DF>> n) {
  const hn::RebindToSigned<DF> di;
  return hn::BitCast(df, hn::Add(hn::ShiftLeft<23>(n), hn::Set(di, 0x3f800000)));
}

// How exact the functions below are. kOfHalf is for numbers that were stored in 16 bits: 2^-17 is a
// 64th of what rounding them to fp16 may have changed, a 256th with bf16.
enum class Accuracy : uint8_t { kFull, kOfHalf };
inline constexpr bool kHalfIsFaster = HWY_TARGET <= HWY_AVX2;  // elsewhere it is as exact as kFull

template <class DF>
HWY_INLINE hn::Vec<DF> exp(DF df, hn::Vec<DF> x) {
  const hn::RebindToSigned<DF> di;
  // In this order x86's min and max hand a NaN on. The ends already give inf and zero.
  const Vectors<DF, 1> bounded{{hn::Max(hn::Set(df, -104.0f), hn::Min(hn::Set(df, 89.0f), x))}};
  const ReducedExp<DF, 1> e = reduce_exp(df, bounded);
  // n may be 128 or -150: scaling in two halves meets inf and the subnormals by itself.
  const auto n = hn::Sub(hn::BitCast(di, e.shifted[0]), hn::BitCast(di, hn::Set(df, kRoundToInt)));
  const auto half = hn::ShiftRight<1>(n);
  const auto scaled = hn::Mul(e.power[0], exponent_from(df, half));
  return hn::Mul(scaled, exponent_from(df, hn::Sub(n, half)));
}

// What sigmoid and its kin share: x bounded to where they still change, and exp(-x) there. Below
// -88.38 that is inf, so that quotients become zero.
template <class DF, int kN>
struct Logistic {
  Vectors<DF, kN> bounded, power;
};

#if HWY_TARGET <= HWY_AVX3
// exp(-x) = 2^(t - floor(t)) 2^floor(t) with t = -x log2 e. The minimax polynomial of degree 4 for
// 2^f on [0, 1] is off by 2^-18.5, and so is the power by the rounding of t below 128, by that of
// log2 e less than half as much; beyond, the ends are met.
template <class DF, int kN>
HWY_INLINE Vectors<DF, kN> half_exp_of_negative(DF df, const Vectors<DF, kN>& x) {
  constexpr float kCoefficients[] = {0x1.a9f15ep-5f, 0x1.ee7dfap-3f, 0x1.62d13ap-1f,
                                     0x1.00002cp+0f};
  Vectors<DF, kN> t, f, power;
  for (int i = 0; i < kN; ++i) t[i] = hn::Mul(x[i], hn::Set(df, -0x1.715476p+0f));
  for (int i = 0; i < kN; ++i) f[i] = fraction(t[i]);
  for (int i = 0; i < kN; ++i) power[i] = hn::Set(df, 0x1.bbcd84p-7f);
  for (const float coefficient : kCoefficients)
    for (int i = 0; i < kN; ++i) power[i] = hn::MulAdd(f[i], power[i], hn::Set(df, coefficient));
  for (int i = 0; i < kN; ++i) power[i] = scale_by(power[i], t[i]);
  return power;
}

// -x = n ln 2 + r with n in sixteenths: exp(-x) = 2^(n - floor(n)) e^r 2^floor(n), the first from a
// table in a register. |r| <= ln 2 / 32, where 1 + r + r^2 / 2 + r^3 / 6 is off by 2^-26.7. With
// the rounding of the table and of the last product: 1.2 ulp. ln 2 in two parts as above.
// REQUIRES: |x| < 2^14.
template <class DF, int kN>
HWY_INLINE Vectors<DF, kN> full_exp_of_negative(DF df, const Vectors<DF, kN>& x) {
  const auto magic = hn::Set(df, 0x1.8p19f);  // x + this has an ulp of a sixteenth
  const auto third = hn::Set(df, 0x1.555556p-3f), second = hn::Set(df, 0.5f);
  Vectors<DF, kN> power, n, r, grown;
  for (int i = 0; i < kN; ++i) power[i] = hn::MulAdd(x[i], hn::Set(df, -0x1.715476p+0f), magic);
  for (int i = 0; i < kN; ++i) n[i] = hn::Sub(power[i], magic);
  for (int i = 0; i < kN; ++i) power[i] = power_of_sixteenths(power[i]);
  for (int i = 0; i < kN; ++i) r[i] = hn::NegMulSub(n[i], hn::Set(df, 0x1.63p-1f), x[i]);
  for (int i = 0; i < kN; ++i) r[i] = hn::NegMulAdd(n[i], hn::Set(df, -0x1.bd0106p-13f), r[i]);
  for (int i = 0; i < kN; ++i) grown[i] = hn::MulAdd(r[i], third, second);
  for (int i = 0; i < kN; ++i) grown[i] = hn::MulAdd(r[i], grown[i], hn::Set(df, 1.0f));
  for (int i = 0; i < kN; ++i) grown[i] = hn::Mul(r[i], grown[i]);
  for (int i = 0; i < kN; ++i) power[i] = hn::MulAdd(grown[i], power[i], power[i]);
  for (int i = 0; i < kN; ++i) power[i] = scale_by(power[i], n[i]);
  return power;
}
#else
#if HWY_TARGET == HWY_AVX2
// The same with n in eighths, as a table of AVX2 holds eight numbers, and 2^f with
// f = -x log2 e - n, which is exact but for the rounding of log2 e (2^-19.7 at x = -89). The
// minimax polynomial 1 + c1 f + c2 f^2 on |f| <= 1/16 is off by 2^-18.1.
template <class DF, int kN>
HWY_INLINE Vectors<DF, kN> half_exp_of_negative(DF df, const Vectors<DF, kN>& x) {
  const hn::RebindToSigned<DF> di;
  const auto magic = hn::Set(df, 0x1.8p20f), log2e = hn::Set(df, -0x1.715476p+0f);
  const auto c1 = hn::Set(df, 0x1.62f98ap-1f), c2 = hn::Set(df, 0x1.ec04c0p-3f);
  Vectors<DF, kN> shifted, f, grown, power;
  for (int i = 0; i < kN; ++i) shifted[i] = hn::MulAdd(x[i], log2e, magic);
  for (int i = 0; i < kN; ++i) f[i] = hn::Sub(shifted[i], magic);
  for (int i = 0; i < kN; ++i) f[i] = hn::MulSub(x[i], log2e, f[i]);
  for (int i = 0; i < kN; ++i) grown[i] = hn::MulAdd(f[i], c2, c1);
  for (int i = 0; i < kN; ++i) power[i] = power_of_eighths(shifted[i]);
  for (int i = 0; i < kN; ++i) grown[i] = hn::Mul(f[i], grown[i]);
  for (int i = 0; i < kN; ++i) power[i] = hn::MulAdd(grown[i], power[i], power[i]);
  for (int i = 0; i < kN; ++i) {
    const auto n = hn::ShiftRight<3>(hn::BitCast(di, shifted[i]));
    power[i] = hn::Mul(power[i], exponent_from(df, n));
  }
  return power;
}
#endif

template <class DF, int kN>
HWY_INLINE Vectors<DF, kN> full_exp_of_negative(DF df, const Vectors<DF, kN>& x) {
  const hn::RebindToSigned<DF> di;
  Vectors<DF, kN> negative;
  for (int i = 0; i < kN; ++i) negative[i] = hn::Neg(x[i]);
  ReducedExp<DF, kN> e = reduce_exp(df, negative);
  for (int i = 0; i < kN; ++i)
    e.power[i] = hn::Mul(e.power[i], exponent_from(df, hn::BitCast(di, e.shifted[i])));
  return e.power;
}
#endif

template <Accuracy kAccuracy, class DF, int kN>
HWY_INLINE Logistic<DF, kN> logistic(DF df, const Vectors<DF, kN>& x) {
  Logistic<DF, kN> l;
  // In this order x86's min and max hand a NaN on.
  for (int i = 0; i < kN; ++i) l.bounded[i] = hn::Min(hn::Set(df, 87.0f), x[i]);
  for (int i = 0; i < kN; ++i) l.bounded[i] = hn::Max(hn::Set(df, -89.0f), l.bounded[i]);
#if HWY_TARGET <= HWY_AVX2
  if constexpr (kAccuracy == Accuracy::kOfHalf) {
    l.power = half_exp_of_negative(df, HWY_TARGET <= HWY_AVX3 ? x : l.bounded);
    return l;
  }
#endif
  l.power = full_exp_of_negative(df, l.bounded);
  return l;
}

template <Accuracy kAccuracy = Accuracy::kFull, class DF, int kN>
HWY_INLINE Vectors<DF, kN> sigmoid(DF df, const Vectors<DF, kN>& x) {
  const auto one = hn::Set(df, 1.0f);
  Vectors<DF, kN> s = logistic<kAccuracy>(df, x).power;
  for (int i = 0; i < kN; ++i) s[i] = hn::Add(one, s[i]);
  for (int i = 0; i < kN; ++i) s[i] = hn::Div(one, s[i]);
  return s;
}

// -inf over inf would be NaN: any smaller magnitude gives the limit instead.
template <class DF, int kN>
HWY_INLINE Vectors<DF, kN> silu_value(DF df, const Vectors<DF, kN>& x, const Logistic<DF, kN>& l) {
  const auto one = hn::Set(df, 1.0f);
  Vectors<DF, kN> s;
  for (int i = 0; i < kN; ++i) s[i] = hn::Add(one, l.power[i]);
  for (int i = 0; i < kN; ++i) s[i] = hn::Div(hn::Max(hn::Set(df, -89.0f), x[i]), s[i]);
  return s;
}

template <Accuracy kAccuracy = Accuracy::kFull, class DF, int kN>
HWY_INLINE Vectors<DF, kN> silu(DF df, const Vectors<DF, kN>& x) {
  return silu_value(df, x, logistic<kAccuracy>(df, x));
}

// s + x s (1 - s). Where x is large a difference loses the small 1 - s, of which 2^-25 are left, x
// times as much in the result; the full form therefore is s (1 + x (1 - s)) with 1 - s = s exp(-x).
template <Accuracy kAccuracy, class DF, int kN>
HWY_INLINE Vectors<DF, kN> silu_slope(DF df, const Logistic<DF, kN>& l) {
  const auto one = hn::Set(df, 1.0f), most = hn::Set(df, 0x1.fffffep+127f);
  Vectors<DF, kN> s, rest;
  for (int i = 0; i < kN; ++i) s[i] = hn::Add(one, l.power[i]);
  for (int i = 0; i < kN; ++i) s[i] = hn::Div(one, s[i]);
  if constexpr (kAccuracy == Accuracy::kOfHalf) {
    for (int i = 0; i < kN; ++i) rest[i] = hn::Mul(l.bounded[i], s[i]);
    for (int i = 0; i < kN; ++i) s[i] = hn::MulAdd(rest[i], hn::Sub(one, s[i]), s[i]);
    return s;
  }
  for (int i = 0; i < kN; ++i) rest[i] = hn::Mul(hn::Min(most, l.power[i]), s[i]);
  for (int i = 0; i < kN; ++i) rest[i] = hn::MulAdd(l.bounded[i], rest[i], one);
  for (int i = 0; i < kN; ++i) s[i] = hn::Mul(s[i], rest[i]);
  return s;
}

template <Accuracy kAccuracy = Accuracy::kFull, class DF, int kN>
HWY_INLINE Vectors<DF, kN> silu_derivative(DF df, const Vectors<DF, kN>& x) {
  return silu_slope<kAccuracy>(df, logistic<kAccuracy>(df, x));
}

// Both with one exp: x becomes silu(x), the derivative is returned.
template <Accuracy kAccuracy = Accuracy::kFull, class DF, int kN>
HWY_INLINE Vectors<DF, kN> silu_with_derivative(DF df, Vectors<DF, kN>& x) {
  const Logistic<DF, kN> l = logistic<kAccuracy>(df, x);
  x = silu_value(df, x, l);
  return silu_slope<kAccuracy>(df, l);
}

}  // namespace tri::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
