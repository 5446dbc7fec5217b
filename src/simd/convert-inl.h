// Room: simd. In: a vector of fp32 lanes, or the address of narrow ones. Out: the other of the two,
// for every numeric::Format, with the bits of the scalar reference (numeric/round.h) on every
// target. To be inlined into the kernels of other rooms; for whole arrays see convert.h.
//
//   load_as_f32<F>(df, base, index)              Lanes(df) elements from `index` on
//   load_n_as_f32<F>(df, base, index, n)         n < Lanes(df); the other lanes are zero
//   store_from_f32<F>(df, v, base, index)        nearest: ties to even, or away where F has no inf
//   store_n_from_f32<F>(df, v, base, index, n)
//   store_*_counted<F>(..., counts)              also counts overflow and underflow per lane
//   store_inside<F>(df, v, base, index)          of values that Extent found inside the range of F
//   rounded<F>(df, v)                            as v is once stored
//   store_stochastic<F>(df, v, random, base, index), store_n_stochastic, ..._counted
//
// `base` needs the alignment of one element only. The _n forms touch n elements and no byte more.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "numeric/format.h"
#include "numeric/round.h"
#include "simd/grid-inl.h"

// Per-target include guard.
#if defined(TRI_SIMD_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRI_SIMD_CONVERT_INL_H_
#undef TRI_SIMD_CONVERT_INL_H_
#else
#define TRI_SIMD_CONVERT_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace tri::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using numeric::Format;

// The integer that stores one element of F.
template <Format F>
using Code =
    std::conditional_t<numeric::storage_bytes(F) == 1, uint8_t,
                       std::conditional_t<numeric::storage_bytes(F) == 2, uint16_t, uint32_t>>;

// F16C gives the bits of our reference; without it fp16 takes the integer way.
inline constexpr bool kHardwareF16 = HWY_ARCH_X86 != 0 && HWY_TARGET <= HWY_AVX2;

// fp32 lanes from storage codes, right-aligned in signed 32-bit lanes with the sign extended.
template <Format F, class DF>
HWY_INLINE hn::Vec<DF> widen(DF df, VecI<DF> code) {
  constexpr const numeric::FormatSpec& s = numeric::kSpecs[static_cast<size_t>(F)];
  const hn::RebindToSigned<DF> di;
  if constexpr (F == Format::kBf16) {
    return hn::BitCast(df, hn::ShiftLeft<16>(code));
  } else {
    constexpr int32_t kCode = (1 << (s.exponent_bits + s.mantissa_bits)) - 1;
    const auto magnitude = expand<s.exponent_bits, s.mantissa_bits, s.bias, s.has_inf>(
        df, hn::And(code, hn::Set(di, kCode)));
    return hn::BitCast(df, hn::Or(magnitude, hn::And(code, hn::Set(di, ~kMagnitude))));
  }
}

// bf16 in the upper half of each lane, to nearest; the lower half is not clear. Not of NaN.
template <class DF>
HWY_INLINE VecI<DF> round_to_upper_half(DF df, hn::Vec<DF> v) {
  const hn::RebindToSigned<DF> di;
  (void)df;
  const auto bits = hn::BitCast(di, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(di, 1));
  return hn::Add(hn::Add(bits, hn::Set(di, 0x7fff)), odd);
}

// The same, NaN quiet.
template <class DF>
HWY_INLINE VecI<DF> upper_half(DF df, hn::Vec<DF> v) {
  const hn::RebindToSigned<DF> di;
  const auto quiet = hn::Or(hn::BitCast(di, v), hn::Set(di, 0x400000));
  return hn::IfThenElse(hn::RebindMask(di, hn::IsNaN(v)), quiet, round_to_upper_half(df, v));
}

// Storage codes from fp32 lanes, to nearest; right-aligned, upper bits clear. F is not fp32.
template <Format F, class DF>
HWY_INLINE VecI<DF> narrow(DF df, hn::Vec<DF> v) {
  constexpr const numeric::FormatSpec& s = numeric::kSpecs[static_cast<size_t>(F)];
  const hn::RebindToSigned<DF> di;
  const hn::RebindToUnsigned<DF> du;
  if constexpr (F == Format::kBf16) {
    return hn::BitCast(di, hn::ShiftRight<16>(hn::BitCast(du, upper_half(df, v))));
  } else {
    const auto bits = hn::BitCast(di, v);
    const auto magnitude = hn::And(bits, hn::Set(di, kMagnitude));
    constexpr int kWidth = s.exponent_bits + s.mantissa_bits;
    const auto sign = hn::And(hn::ShiftRight<31 - kWidth>(bits), hn::Set(di, 1 << kWidth));
    auto code = magnitude;
    if constexpr (s.has_inf) {
      constexpr int32_t kTop = ((1 << s.exponent_bits) - 1) << s.mantissa_bits;
      code = hn::Min(round_to_even<s.mantissa_bits, s.bias>(df, magnitude), hn::Set(di, kTop));
      const auto payload = hn::And(hn::ShiftRight<23 - s.mantissa_bits>(magnitude),
                                   hn::Set(di, (1 << s.mantissa_bits) - 1));
      const auto nan = hn::Or(payload, hn::Set(di, kTop | 1 << (s.mantissa_bits - 1)));
      code = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, kInf)), nan, code);
    } else {
      const auto clamped = hn::Min(magnitude, hn::Set(di, word(numeric::max_finite(F))));
      code = round_to_away<s.mantissa_bits, s.bias>(df, clamped);
    }
    return hn::Or(code, sign);
  }
}

template <class DF>
struct Narrowed {
  VecI<DF> code;
  hn::Mask<hn::RebindToSigned<DF>> overflow;
  hn::Mask<hn::RebindToSigned<DF>> underflow;
};

// As narrow(), rounding up with the probability of the dropped fraction. The masks cost nothing
// where they are not used.
template <Format F, class DF>
HWY_INLINE Narrowed<DF> narrow_stochastic(DF df, hn::Vec<DF> v, VecU<DF> random) {
  constexpr const numeric::FormatSpec& s = numeric::kSpecs[static_cast<size_t>(F)];
  const hn::RebindToSigned<DF> di;
  const auto bits = hn::BitCast(di, v);
  const auto magnitude = hn::And(bits, hn::Set(di, kMagnitude));
  constexpr int kWidth = s.exponent_bits + s.mantissa_bits;
  constexpr int32_t kMax = (1 << kWidth) - 1 - (s.has_inf ? 1 << s.mantissa_bits : 0);

  const auto inf_or_less = hn::Min(magnitude, hn::Set(di, kInf));
  auto code = inf_or_less;
  if constexpr (F == Format::kBf16) {
    const auto noise = hn::BitCast(di, hn::ShiftRight<16>(random));
    code = hn::ShiftRight<16>(hn::Add(inf_or_less, noise));
  } else {
    code = round_stochastic<s.mantissa_bits, s.bias>(df, inf_or_less, random);
  }
  const auto overflow = hn::Gt(code, hn::Set(di, kMax));
  const auto zero = hn::Eq(code, hn::Zero(di));
  const auto underflow = hn::AndNot(hn::Eq(magnitude, hn::Zero(di)), zero);
  code = hn::Min(code, hn::Set(di, kMax + (s.has_inf ? 1 : 0)));
  if constexpr (s.has_inf) {
    const auto payload = hn::And(hn::ShiftRight<23 - s.mantissa_bits>(magnitude),
                                 hn::Set(di, (1 << s.mantissa_bits) - 1));
    const auto nan = hn::Or(payload, hn::Set(di, (kMax + 1) | 1 << (s.mantissa_bits - 1)));
    code = hn::IfThenElse(hn::Gt(magnitude, hn::Set(di, kInf)), nan, code);
  }
  const auto sign = hn::And(hn::ShiftRight<31 - kWidth>(bits), hn::Set(di, 1 << kWidth));
  return {hn::Or(code, sign), overflow, underflow};
}

// Lanes that a nearest store to F answers with overflow; see Note [Overflow] in numeric/round.h.
template <Format F, class DF>
HWY_INLINE hn::Mask<hn::RebindToSigned<DF>> overflows(DF df, hn::Vec<DF> v) {
  const hn::RebindToSigned<DF> di;
  (void)df;
  const auto magnitude = hn::And(hn::BitCast(di, v), hn::Set(di, kMagnitude));
  return hn::Gt(magnitude, hn::Set(di, word(numeric::overflow_threshold(F)) - 1));
}

// Bits of the least magnitude that a nearest store to F does not make zero. F is not fp32.
template <Format F>
constexpr int32_t first_kept() {
  constexpr bool kTieGoesToZero = numeric::storage_rounding(F) == numeric::Rounding::kNearestEven;
  return word(numeric::min_subnormal(F) / 2) + (kTieGoesToZero ? 1 : 0);
}

// Lanes that are not zero but that a nearest store to F makes zero.
template <Format F, class DF>
HWY_INLINE hn::Mask<hn::RebindToSigned<DF>> underflows(DF df, hn::Vec<DF> v) {
  const hn::RebindToSigned<DF> di;
  (void)df;
  if constexpr (F == Format::kF32) {
    return hn::FirstN(di, 0);
  } else {
    const auto magnitude = hn::And(hn::BitCast(di, v), hn::Set(di, kMagnitude));
    return hn::And(hn::Gt(magnitude, hn::Zero(di)),
                   hn::Lt(magnitude, hn::Set(di, first_kept<F>())));
  }
}

// Running counts per lane; a lane holds up to 2^31 - 1 events.
template <class DF>
struct RangeCountsOf {
  VecI<DF> overflow;
  VecI<DF> underflow;

  // Not by member initializers: an implicit constructor would not be compiled for the target.
  HWY_INLINE RangeCountsOf()
      : overflow(hn::Zero(hn::RebindToSigned<DF>())),
        underflow(hn::Zero(hn::RebindToSigned<DF>())) {}

  template <class M>
  HWY_INLINE void add(M over, M under) {
    const hn::RebindToSigned<DF> di;
    overflow = hn::Sub(overflow, hn::VecFromMask(di, over));  // true is -1
    underflow = hn::Sub(underflow, hn::VecFromMask(di, under));
  }
  HWY_INLINE uint64_t overflow_total() const { return total(overflow); }
  HWY_INLINE uint64_t underflow_total() const { return total(underflow); }

 private:
  HWY_INLINE static uint64_t total(VecI<DF> v) {
    const hn::RebindToSigned<DF> di;
    HWY_ALIGN int32_t lanes[hn::MaxLanes(di)];
    hn::Store(v, di, lanes);
    uint64_t sum = 0;
    for (size_t i = 0; i < hn::Lanes(di); ++i) sum += static_cast<uint64_t>(lanes[i]);
    return sum;
  }
};
template <class DF>
using RangeCounts = RangeCountsOf<std::remove_const_t<DF>>;  // takes decltype(df) of a const df

// The largest magnitude of all values seen and the least above zero, lane by lane: four operations
// that tell for a whole array whether it must be counted.
template <class DF>
struct ExtentOf {
  VecI<DF> largest;  // bits; NaN is above inf
  VecU<DF> least;    // bits less one, so that zero is above all

  HWY_INLINE ExtentOf()
      : largest(hn::Zero(hn::RebindToSigned<DF>())),
        least(hn::Set(hn::RebindToUnsigned<DF>(), ~uint32_t{0})) {}

  HWY_INLINE void add(hn::Vec<DF> v) {
    const hn::RebindToSigned<DF> di;
    const hn::RebindToUnsigned<DF> du;
    const auto magnitude = hn::And(hn::BitCast(di, v), hn::Set(di, kMagnitude));
    largest = hn::Max(largest, magnitude);
    least = hn::Min(least, hn::BitCast(du, hn::Sub(magnitude, hn::Set(di, 1))));
  }
  HWY_INLINE float most() const {
    const hn::RebindToSigned<DF> di;
    return std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(di, largest)));
  }
  // Nothing would overflow, underflow or be NaN if all values times `scale`, a power of two, were
  // stored as F: products keep the order of the values.
  template <Format F>
  HWY_INLINE bool inside(float scale) const {
    const hn::RebindToUnsigned<DF> du;
    const float top = most() * scale;  // NaN compares as false
    if (!(top < numeric::overflow_threshold(F))) return false;
    if constexpr (F == Format::kF32) return true;
    const uint32_t bits = hn::GetLane(hn::MinOfLanes(du, least)) + 1;
    return bits == 0 || word(std::bit_cast<float>(bits) * scale) >= first_kept<F>();
  }
};
template <class DF>
using Extent = ExtentOf<std::remove_const_t<DF>>;

// The value that F's code of v has.
template <Format F, class DF>
HWY_INLINE hn::Vec<DF> rounded(DF df, hn::Vec<DF> v) {
  if constexpr (F == Format::kF32) {
    return v;
  } else if constexpr (F == Format::kF16 && kHardwareF16) {
    const hn::Rebind<hwy::float16_t, DF> dh;
    return hn::PromoteTo(df, hn::DemoteTo(dh, v));
  } else if constexpr (F == Format::kBf16) {
    const hn::RebindToSigned<DF> di;
    return hn::BitCast(df, hn::And(upper_half(df, v), hn::Set(di, ~0xffff)));
  } else {
    constexpr int kFree = 32 - 8 * static_cast<int>(sizeof(Code<F>));
    return widen<F>(df, hn::ShiftRight<kFree>(hn::ShiftLeft<kFree>(narrow<F>(df, v))));
  }
}

// What load_as_f32() makes of the codes it loads.
template <Format F, class DF>
HWY_INLINE hn::Vec<DF> codes_as_f32(DF df, hn::Vec<hn::Rebind<Code<F>, DF>> code) {
  if constexpr (F == Format::kF32) {
    return hn::BitCast(df, code);
  } else if constexpr (F == Format::kF16 && kHardwareF16) {
    const hn::Rebind<hwy::float16_t, DF> dh;
    return hn::PromoteTo(df, hn::BitCast(dh, code));
  } else {
    const hn::Rebind<std::make_signed_t<Code<F>>, DF> dn;
    return widen<F>(df, hn::PromoteTo(hn::RebindToSigned<DF>(), hn::BitCast(dn, code)));
  }
}

template <Format F, class DF>
HWY_INLINE hn::Vec<DF> load_as_f32(DF df, const void* base, size_t index) {
  const hn::Rebind<Code<F>, DF> dn;
  return codes_as_f32<F>(df, hn::LoadU(dn, static_cast<const Code<F>*>(base) + index));
}

template <Format F, class DF>
HWY_INLINE void store_codes(DF df, VecI<DF> code, void* base, size_t index) {
  const hn::Rebind<Code<F>, DF> dn;
  (void)df;
  hn::StoreU(hn::DemoteTo(dn, code), dn, static_cast<Code<F>*>(base) + index);
}

template <Format F, class DF>
HWY_INLINE void store_from_f32(DF df, hn::Vec<DF> v, void* base, size_t index) {
  if constexpr (F == Format::kF32) {
    hn::StoreU(v, df, static_cast<float*>(base) + index);
  } else if constexpr (F == Format::kF16 && kHardwareF16) {
    const hn::Rebind<hwy::float16_t, DF> dh;
    const hn::Rebind<uint16_t, DF> d16;
    const auto code = hn::BitCast(d16, hn::DemoteTo(dh, v));
    hn::StoreU(code, d16, static_cast<uint16_t*>(base) + index);
  } else {
    store_codes<F>(df, narrow<F>(df, v), base, index);
  }
}

template <Format F, class DF>
HWY_INLINE void store_inside(DF df, hn::Vec<DF> v, void* base, size_t index) {
  if constexpr (F == Format::kBf16) {
    const hn::RebindToSigned<DF> di;
    const hn::RebindToUnsigned<DF> du;
    const auto upper = hn::ShiftRight<16>(hn::BitCast(du, round_to_upper_half(df, v)));
    store_codes<F>(df, hn::BitCast(di, upper), base, index);
  } else {
    store_from_f32<F>(df, v, base, index);
  }
}

template <Format F, class DF>
HWY_INLINE void store_from_f32_counted(DF df, hn::Vec<DF> v, void* base, size_t index,
                                       RangeCounts<DF>& counts) {
  counts.add(overflows<F>(df, v), underflows<F>(df, v));
  store_from_f32<F>(df, v, base, index);
}

// `random`: 32 uniform bits per lane (random-inl.h). fp32 is stored as it is.
template <Format F, class DF>
HWY_INLINE void store_stochastic_counted(DF df, hn::Vec<DF> v, VecU<DF> random, void* base,
                                         size_t index, RangeCounts<DF>& counts) {
  if constexpr (F == Format::kF32) {
    store_from_f32_counted<F>(df, v, base, index, counts);
  } else {
    const Narrowed<DF> narrowed = narrow_stochastic<F>(df, v, random);
    counts.add(narrowed.overflow, narrowed.underflow);
    store_codes<F>(df, narrowed.code, base, index);
  }
}

template <Format F, class DF>
HWY_INLINE void store_stochastic(DF df, hn::Vec<DF> v, VecU<DF> random, void* base, size_t index) {
  if constexpr (F == Format::kF32) {
    store_from_f32<F>(df, v, base, index);
  } else {
    store_codes<F>(df, narrow_stochastic<F>(df, v, random).code, base, index);
  }
}

// Room for one vector of F on the stack: the edge of an array goes through it.
template <Format F, class DF>
struct Edge {
  HWY_ALIGN unsigned char bytes[hn::MaxLanes(DF()) * sizeof(Code<F>)] = {};

  HWY_INLINE void read(const void* base, size_t index, size_t n) {
    const size_t from = index * sizeof(Code<F>);
    std::memcpy(bytes, static_cast<const unsigned char*>(base) + from, n * sizeof(Code<F>));
  }
  HWY_INLINE void write(void* base, size_t index, size_t n) const {
    const size_t to = index * sizeof(Code<F>);
    std::memcpy(static_cast<unsigned char*>(base) + to, bytes, n * sizeof(Code<F>));
  }
};

template <Format F, class DF>
HWY_INLINE hn::Vec<DF> load_n_as_f32(DF df, const void* base, size_t index, size_t n) {
  Edge<F, DF> edge;
  edge.read(base, index, n);
  return load_as_f32<F>(df, edge.bytes, 0);
}

template <Format F, class DF>
HWY_INLINE void store_n_from_f32(DF df, hn::Vec<DF> v, void* base, size_t index, size_t n) {
  Edge<F, DF> edge;
  store_from_f32<F>(df, v, edge.bytes, 0);
  edge.write(base, index, n);
}

// Only the first n lanes are counted.
template <Format F, class DF>
HWY_INLINE void store_n_from_f32_counted(DF df, hn::Vec<DF> v, void* base, size_t index, size_t n,
                                         RangeCounts<DF>& counts) {
  Edge<F, DF> edge;
  const auto kept = hn::IfThenElseZero(hn::FirstN(df, n), v);
  store_from_f32_counted<F>(df, kept, edge.bytes, 0, counts);
  edge.write(base, index, n);
}

template <Format F, class DF>
HWY_INLINE void store_n_stochastic(DF df, hn::Vec<DF> v, VecU<DF> random, void* base, size_t index,
                                   size_t n) {
  Edge<F, DF> edge;
  store_stochastic<F>(df, v, random, edge.bytes, 0);
  edge.write(base, index, n);
}

template <Format F, class DF>
HWY_INLINE void store_n_stochastic_counted(DF df, hn::Vec<DF> v, VecU<DF> random, void* base,
                                           size_t index, size_t n, RangeCounts<DF>& counts) {
  Edge<F, DF> edge;
  const auto kept = hn::IfThenElseZero(hn::FirstN(df, n), v);
  store_stochastic_counted<F>(df, kept, random, edge.bytes, 0, counts);
  edge.write(base, index, n);
}

}  // namespace tri::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
