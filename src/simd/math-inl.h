// Room: simd. In: a vector of fp32 lanes. Out: exp, sigmoid, silu or its derivative of each. One
// algorithm on all targets; where the target has no FMA, MulAdd rounds twice, and last bits differ.
//
//   exp(x)              1.5 ulp, subnormal results included; inf above 88.72, 0 below -103.98
//   sigmoid(x)          3 ulp; below -87.33, where it would be subnormal, 0
//   silu(x)             4 ulp = x sigmoid(x); 0 below -87.33
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

// 2^n for the n in the low bits of each lane, -126 <= n <= 127.
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

// For x <= 0; results that would be subnormal are zero, which saves the second scaling.
template <class DF>
HWY_INLINE hn::Vec<DF> exp_of_nonpositive(DF df, hn::Vec<DF> x) {
  const auto least = hn::Set(df, -0x1.5d589ep+6f);  // ln 2^-126, rounded up
  const ReducedExp<DF> e = reduce_exp(df, hn::Max(least, x));
  const auto scaled = hn::Mul(e.power, exponent_from(df, e.shifted));
  return hn::IfThenZeroElse(hn::Lt(x, least), scaled);
}

// sigmoid(x) and 1 - sigmoid(x) = sigmoid(-x), each to full relative precision: from e = exp(-|x|),
// which cannot overflow, the larger is 1 / (1 + e) and the smaller e / (1 + e).
template <class DF>
struct SigmoidPair {
  hn::Vec<DF> value;
  hn::Vec<DF> complement;
};

template <class DF>
HWY_INLINE SigmoidPair<DF> sigmoid_pair(DF df, hn::Vec<DF> x) {
  const auto e = exp_of_nonpositive(df, hn::Or(x, hn::SignBit(df)));
  const auto larger = hn::Div(hn::Set(df, 1.0f), hn::Add(hn::Set(df, 1.0f), e));
  const auto smaller = hn::Mul(e, larger);
  const auto negative = hn::Lt(x, hn::Zero(df));
  return {hn::IfThenElse(negative, smaller, larger), hn::IfThenElse(negative, larger, smaller)};
}

template <class DF>
HWY_INLINE hn::Vec<DF> sigmoid(DF df, hn::Vec<DF> x) {
  return sigmoid_pair(df, x).value;
}

// -inf times sigmoid's zero would be NaN: the largest finite magnitude gives the limit instead.
template <class DF>
HWY_INLINE hn::Vec<DF> silu(DF df, hn::Vec<DF> x) {
  const auto s = sigmoid(df, x);
  return hn::Mul(hn::Max(hn::Set(df, -0x1.fffffep+127f), x), s);
}

// s + x s (1 - s), where s (1 - s) is formed first: it is small where x is large.
template <class DF>
HWY_INLINE hn::Vec<DF> silu_derivative(DF df, hn::Vec<DF> x) {
  const auto limit = hn::Set(df, 0x1.fffffep+127f);
  const SigmoidPair<DF> s = sigmoid_pair(df, x);
  const auto finite = hn::Max(hn::Neg(limit), hn::Min(limit, x));
  return hn::MulAdd(finite, hn::Mul(s.value, s.complement), s.value);
}

}  // namespace tri::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
