// Room: simd. In: a vector of fp32 lanes. Out: exp, sigmoid, silu or its derivative of each. One
// algorithm on all targets; where the target has no FMA, MulAdd rounds twice, and last bits differ.
//
//   exp(x)              1.5 ulp, subnormal results included; inf above 88.72, 0 below -103.98
//   sigmoid(x)          3 ulp; subnormal below -87.33, 0 below -88.38
//   silu(x)             4 ulp = x sigmoid(x); 0 below -88.38
//   silu_derivative(x)  absolute error below 2^-21 (it crosses zero at -1.278)
// NaN gives NaN, and no other input does, infinities included.
#include <cstdint>

#include "hwy/highway.h"

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

// x = n ln 2 + r, |r| <= ln 2 / 2: power = e^r, and n sits in the low bits of `shifted`.
template <class DF>
struct ReducedExp {
  hn::Vec<DF> power;
  hn::Vec<hn::RebindToSigned<DF>> shifted;
};

inline constexpr float kRoundToInt = 0x1.8p23f;  // x + this has an ulp of 1

// ln 2 in two parts, the first so short that n times it is exact without FMA as well. e^r as
// 1 + r + r^2 q(r), where q is the minimax polynomial of degree 4 for the relative error of the
// whole: 2^-28. REQUIRES: |x| < 2^15.
template <class DF>
HWY_INLINE ReducedExp<DF> reduce_exp(DF df, hn::Vec<DF> x) {
  const hn::RebindToSigned<DF> di;
  const auto magic = hn::Set(df, kRoundToInt);
  const auto shifted = hn::MulAdd(x, hn::Set(df, 0x1.715476p+0f), magic);
  const auto n = hn::Sub(shifted, magic);
  auto r = hn::NegMulAdd(n, hn::Set(df, 0x1.63p-1f), x);
  r = hn::NegMulAdd(n, hn::Set(df, -0x1.bd0106p-13f), r);
  auto p = hn::MulAdd(r, hn::Set(df, 0x1.6a23cap-10f), hn::Set(df, 0x1.123a2p-7f));
  p = hn::MulAdd(r, p, hn::Set(df, 0x1.5558f2p-5f));
  p = hn::MulAdd(r, p, hn::Set(df, 0x1.555492p-3f));
  p = hn::MulAdd(r, p, hn::Set(df, 0x1.fffffcp-2f));
  p = hn::MulAdd(r, p, hn::Set(df, 1.0f));
  return {hn::MulAdd(r, p, hn::Set(df, 1.0f)), hn::BitCast(di, shifted)};
}

// 2^n for the n in the low bits of each lane, -126 <= n <= 128: the last one is inf.
template <class DF>
HWY_INLINE hn::Vec<DF> exponent_from(DF df, hn::Vec<hn::RebindToSigned<DF>> n) {
  const hn::RebindToSigned<DF> di;
  return hn::BitCast(df, hn::Add(hn::ShiftLeft<23>(n), hn::Set(di, 0x3f800000)));
}

template <class DF>
HWY_INLINE hn::Vec<DF> exp(DF df, hn::Vec<DF> x) {
  const hn::RebindToSigned<DF> di;
  // In this order x86's min and max hand a NaN on. The ends already give inf and zero.
  x = hn::Max(hn::Set(df, -104.0f), hn::Min(hn::Set(df, 89.0f), x));
  const ReducedExp<DF> e = reduce_exp(df, x);
  // n may be 128 or -150: scaling in two halves meets inf and the subnormals by itself.
  const auto n = hn::Sub(e.shifted, hn::BitCast(di, hn::Set(df, kRoundToInt)));
  const auto half = hn::ShiftRight<1>(n);
  const auto scaled = hn::Mul(e.power, exponent_from(df, half));
  return hn::Mul(scaled, exponent_from(df, hn::Sub(n, half)));
}

// What sigmoid and its kin share: x bounded to where they still change, and exp(-x) there. Below
// -88.38 that is inf, so that quotients become zero.
template <class DF>
struct Logistic {
  hn::Vec<DF> bounded;
  hn::Vec<DF> power;
};

template <class DF>
HWY_INLINE Logistic<DF> logistic(DF df, hn::Vec<DF> x) {
  // In this order x86's min and max hand a NaN on.
  const auto bounded = hn::Max(hn::Set(df, -89.0f), hn::Min(hn::Set(df, 87.0f), x));
  const ReducedExp<DF> e = reduce_exp(df, hn::Neg(bounded));
  return {bounded, hn::Mul(e.power, exponent_from(df, e.shifted))};
}

template <class DF>
HWY_INLINE hn::Vec<DF> sigmoid(DF df, hn::Vec<DF> x) {
  const auto one = hn::Set(df, 1.0f);
  return hn::Div(one, hn::Add(one, logistic(df, x).power));
}

// -inf over inf would be NaN: any smaller magnitude gives the limit instead.
template <class DF>
HWY_INLINE hn::Vec<DF> silu(DF df, hn::Vec<DF> x) {
  const auto denominator = hn::Add(hn::Set(df, 1.0f), logistic(df, x).power);
  return hn::Div(hn::Max(hn::Set(df, -89.0f), x), denominator);
}

// s (1 + x (1 - s)), where 1 - s = s exp(-x): a difference would lose what is small where x is
// large.
template <class DF>
HWY_INLINE hn::Vec<DF> silu_derivative(DF df, hn::Vec<DF> x) {
  const auto one = hn::Set(df, 1.0f), most = hn::Set(df, 0x1.fffffep+127f);
  const Logistic<DF> l = logistic(df, x);
  const auto s = hn::Div(one, hn::Add(one, l.power));
  const auto complement = hn::Mul(hn::Min(most, l.power), s);
  return hn::Mul(s, hn::MulAdd(l.bounded, complement, one));
}

}  // namespace tri::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
