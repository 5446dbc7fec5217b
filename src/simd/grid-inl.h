// Room: simd. In: magnitudes as fp32 bits. Out: their codes in any format with fewer exponents than
// fp32, rounded in one of three ways, and back. No signs, no memory: convert-inl.h and split-inl.h
// put these around.
#include <bit>
#include <cstdint>

#include "hwy/highway.h"
#include "numeric/format.h"

// Per-target include guard.
#if defined(TRI_SIMD_GRID_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRI_SIMD_GRID_INL_H_
#undef TRI_SIMD_GRID_INL_H_
#else
#define TRI_SIMD_GRID_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace tri::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class DF>
using VecI = hn::Vec<hn::RebindToSigned<DF>>;
template <class DF>
using VecU = hn::Vec<hn::RebindToUnsigned<DF>>;

inline constexpr int32_t kMagnitude = 0x7fffffff;
inline constexpr int32_t kInf = 0x7f800000;

constexpr int32_t word(float value) { return static_cast<int32_t>(std::bit_cast<uint32_t>(value)); }

// Note [Two grids]: the code of a magnitude in a format with fewer exponents than fp32. Normal
// values are rounded as integers, carries run into the exponent; below the smallest normal value
// the grid is even, and adding a float whose ulp is one step of it rounds to that grid, to nearest
// even. `magnitude` holds fp32 bits without the sign, below 2^31 - 2^(23 - kMantissa).
template <int kMantissa, int kBias>
struct Grid {
  static constexpr int kDrop = 23 - kMantissa;
  static constexpr int32_t kRebias = (127 - kBias) << 23;
  static constexpr int32_t kMinNormal = word(numeric::power_of_two(1 - kBias));
  static constexpr int kStep = 1 - kBias - kMantissa;  // log2 of the even grid
  static constexpr float kMagic = numeric::power_of_two(kStep + 23);
};

template <class G, class DF>
HWY_INLINE VecI<DF> choose_grid(DF df, VecI<DF> magnitude, VecI<DF> normal, VecI<DF> even) {
  const hn::RebindToSigned<DF> di;
  (void)df;
  return hn::IfThenElse(hn::Lt(magnitude, hn::Set(di, G::kMinNormal)), even, normal);
}

template <int kMantissa, int kBias, class DF>
HWY_INLINE VecI<DF> round_to_even(DF df, VecI<DF> magnitude) {
  using G = Grid<kMantissa, kBias>;
  const hn::RebindToSigned<DF> di;
  const auto odd = hn::And(hn::ShiftRight<G::kDrop>(magnitude), hn::Set(di, 1));
  const auto half = hn::Set(di, (1 << (G::kDrop - 1)) - 1 - G::kRebias);
  const auto normal = hn::ShiftRight<G::kDrop>(hn::Add(hn::Add(magnitude, half), odd));
  const auto shifted = hn::Add(hn::BitCast(df, magnitude), hn::Set(df, G::kMagic));
  const auto even = hn::Sub(hn::BitCast(di, shifted), hn::Set(di, word(G::kMagic)));
  return choose_grid<G>(df, magnitude, normal, even);
}

// On the even grid a set last bit turns each tie into "just above" and moves nothing else across
// one, as ties have their last bit clear.
template <int kMantissa, int kBias, class DF>
HWY_INLINE VecI<DF> round_to_away(DF df, VecI<DF> magnitude) {
  using G = Grid<kMantissa, kBias>;
  const hn::RebindToSigned<DF> di;
  const auto half = hn::Set(di, (1 << (G::kDrop - 1)) - G::kRebias);
  const auto normal = hn::ShiftRight<G::kDrop>(hn::Add(magnitude, half));
  const auto above = hn::BitCast(df, hn::Or(magnitude, hn::Set(di, 1)));
  const auto shifted = hn::Add(above, hn::Set(df, G::kMagic));
  const auto even = hn::Sub(hn::BitCast(di, shifted), hn::Set(di, word(G::kMagic)));
  return choose_grid<G>(df, magnitude, normal, even);
}

// The fraction on the even grid is cut to 31 - kMantissa bits, see numeric::encode_stochastic.
template <int kMantissa, int kBias, class DF>
HWY_INLINE VecI<DF> round_stochastic(DF df, VecI<DF> magnitude, VecU<DF> random) {
  using G = Grid<kMantissa, kBias>;
  const hn::RebindToSigned<DF> di;
  const hn::RebindToUnsigned<DF> du;
  constexpr int kFraction = 31 - kMantissa;
  const auto noise = hn::BitCast(di, hn::ShiftRight<32 - G::kDrop>(random));
  const auto biased = hn::Sub(magnitude, hn::Set(di, G::kRebias));
  const auto normal = hn::ShiftRight<G::kDrop>(hn::Add(biased, noise));
  const auto scale = hn::Set(df, numeric::power_of_two(kFraction - G::kStep));
  const auto fixed = hn::ConvertTo(di, hn::Mul(hn::BitCast(df, magnitude), scale));
  const auto sum = hn::Add(hn::BitCast(du, fixed), hn::ShiftRight<32 - kFraction>(random));
  const auto even = hn::BitCast(di, hn::ShiftRight<kFraction>(sum));
  return choose_grid<G>(df, magnitude, normal, even);
}

// The inverse: fp32 bits of a magnitude code. Codes of the top exponent become inf and NaN if
// kHasInf, else ordinary numbers.
template <int kExponent, int kMantissa, int kBias, bool kHasInf, class DF>
HWY_INLINE VecI<DF> expand(DF df, VecI<DF> code) {
  using G = Grid<kMantissa, kBias>;
  const hn::RebindToSigned<DF> di;
  auto normal = hn::Add(hn::ShiftLeft<G::kDrop>(code), hn::Set(di, G::kRebias));
  if constexpr (kHasInf) {
    constexpr int32_t kTop = (1 << kExponent) - 1;
    const auto special = hn::Gt(code, hn::Set(di, (kTop << kMantissa) - 1));
    constexpr int32_t kLift = (255 - (kTop + 127 - kBias)) << 23;
    normal = hn::Add(normal, hn::And(hn::VecFromMask(di, special), hn::Set(di, kLift)));
    constexpr int32_t kQuiet = 0x400000;
    const auto nan = hn::Gt(code, hn::Set(di, kTop << kMantissa));
    normal = hn::Or(normal, hn::And(hn::VecFromMask(di, nan), hn::Set(di, kQuiet)));
  }
  const auto magic = hn::Set(df, G::kMagic);
  const auto even = hn::Sub(hn::Or(hn::BitCast(df, code), magic), magic);
  const auto subnormal = hn::Lt(code, hn::Set(di, 1 << kMantissa));
  return hn::IfThenElse(subnormal, hn::BitCast(di, even), normal);
}

}  // namespace tri::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
