#include <cmath>
#include <type_traits>

#include "simd/convert.h"
#include "simd/native_bf16.h"
#include "simd/target.h"

#ifndef TRI_SIMD_CONVERT_BLOCK_
#define TRI_SIMD_CONVERT_BLOCK_
namespace tri::simd {
namespace {

// Rows to encode.
struct Block {
  const float* src;
  size_t src_stride;
  void* dst;
  size_t dst_stride;
  size_t rows, n;
  bool native;  // the machine has an instruction for bf16
};

}  // namespace
}  // namespace tri::simd
// For lambdas over lanes.
#define TRI_INLINE HWY_ATTR __attribute__((always_inline))
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/convert_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "simd/convert-inl.h"
#include "simd/random-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tri::simd::HWY_NAMESPACE {
namespace {

// Values pass as they are, or times a power of two.
struct Unscaled {
  template <class V>
  HWY_INLINE V operator()(V v) const {
    return v;
  }
  float factor = 1.0f;
};
struct Scaled {
  template <class V>
  HWY_INLINE V operator()(V v) const {
    return hn::Mul(v, hn::Set(hn::DFromV<V>(), factor));
  }
  float factor;
};

template <Format F, class Scale>
void decode_as(const void* src, float* dst, size_t n, Scale scaled) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(scaled(load_as_f32<F>(df, src, i)), df, dst + i);
  if (i < n) {
    const auto v = scaled(load_n_as_f32<F>(df, src, i, n - i));
    store_n_from_f32<Format::kF32>(df, v, dst, i, n - i);
  }
}

template <Format F>
uint64_t round_to_as(const float* src, float* dst, size_t n) {
  const hn::ScalableTag<float> df;
  const hn::RebindToSigned<decltype(df)> di;
  const size_t lanes = hn::Lanes(df);
  RangeCounts<decltype(df)> counts;
  const auto none = hn::FirstN(di, 0);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::LoadU(df, src + i);
    counts.add(overflows<F>(df, v), none);
    hn::StoreU(rounded<F>(df, v), df, dst + i);
  }
  if (i < n) {
    const auto v = load_n_as_f32<Format::kF32>(df, src, i, n - i);
    counts.add(overflows<F>(df, v), none);
    store_n_from_f32<Format::kF32>(df, rounded<F>(df, v), dst, i, n - i);
  }
  return counts.overflow_total();
}

// Calls full(state, v, to, index) for all full vectors of a block and rest(state, v, to, index,
// count) for what is left of each row; returns the state. It is handed on by value, and bodies
// capture by value: what is captured by reference may be what a vector store overwrites, and would
// be written to memory and read back for every vector.
template <Format F, class State, class Full, class Rest>
HWY_INLINE State for_each_vector(const Block& b, State state, Full full, Rest rest) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  for (size_t row = 0; row < b.rows; ++row) {
    const float* HWY_RESTRICT from = b.src + row * b.src_stride;
    Code<F>* HWY_RESTRICT to = static_cast<Code<F>*>(b.dst) + row * b.dst_stride;
    size_t i = 0;
    State mine = state;
    for (; i + lanes <= b.n; i += lanes) full(mine, hn::LoadU(df, from + i), to, i);
    state = mine;
    if (i < b.n) rest(state, load_n_as_f32<Format::kF32>(df, from, i, b.n - i), to, i, b.n - i);
  }
  return state;
}

float max_abs(const Block& b) {
  float most = 0;
  for (size_t row = 0; row < b.rows; ++row) {
    for (size_t i = 0; i < b.n; ++i) {
      const float magnitude = std::fabs(b.src[row * b.src_stride + i]);
      if (magnitude > most) most = magnitude;  // false for NaN
    }
  }
  return most;
}

template <class D>
struct Seen {
  HWY_INLINE Seen() {}  // NOLINT: a defaulted one would not be compiled for the target
  RangeCounts<D> counts;
  Extent<D> extent;
};

template <Format F, class Scale>
ScaledCounts encode_counted(const Block& b, Scale scaled) {
  const hn::ScalableTag<float> df;
  using D = std::remove_const_t<decltype(df)>;
  const auto seen = for_each_vector<F>(
      b, Seen<D>(),
      [=](Seen<D>& s, hn::Vec<D> v, Code<F>* to, size_t i) TRI_INLINE {
        s.extent.add(v);
        store_from_f32_counted<F>(df, scaled(v), to, i, s.counts);
      },
      [=](Seen<D>& s, hn::Vec<D> v, Code<F>* to, size_t i, size_t n) TRI_INLINE {
        s.extent.add(v);
        store_n_from_f32_counted<F>(df, scaled(v), to, i, n, s.counts);
      });
  const float most = seen.extent.most();
  return {{seen.counts.overflow_total(), seen.counts.underflow_total()},
          most >= 0 ? most : max_abs(b)};
}

// Of values inside the range of F. False: some are not, and dst holds nothing of use.
template <Format F, class Scale>
bool encode_inside(const Block& b, Scale scaled, float& most) {
  const hn::ScalableTag<float> df;
  using D = std::remove_const_t<decltype(df)>;
  const auto extent = for_each_vector<F>(
      b, Extent<D>(),
      [=](Extent<D>& seen, hn::Vec<D> v, Code<F>* to, size_t i) TRI_INLINE {
        seen.add(v);
        store_inside<F>(df, scaled(v), to, i);
      },
      [=](Extent<D>& seen, hn::Vec<D> v, Code<F>* to, size_t i, size_t n) TRI_INLINE {
        seen.add(v);
        store_n_from_f32<F>(df, scaled(v), to, i, n);
      });
  most = extent.most();
  return extent.template inside<F>(scaled.factor);
}

// Where losses are rare, values are stored without counting, and again with it if there were any.
// 8-bit formats lose something in nearly every block.
template <Format F, class Scale>
ScaledCounts encode_block(const Block& b, Scale scaled) {
  if constexpr (sizeof(Code<F>) > 1) {
    float most;
#if HWY_TARGET <= HWY_AVX3
    if constexpr (F == Format::kBf16 && std::is_same_v<Scale, Unscaled>) {
      auto* to = static_cast<uint16_t*>(b.dst);
      if (b.native &&
          encode_bf16_natively(b.src, b.src_stride, to, b.dst_stride, b.rows, b.n, &most))
        return {{}, most};
    }
#endif
    if (encode_inside<F>(b, scaled, most)) return {{}, most};
  }
  return encode_counted<F>(b, scaled);
}

// In blocks that stay in L1 if they have to be encoded twice.
template <Format F, class Scale>
ScaledCounts encode_as(const Block& all, Scale scaled) {
  constexpr size_t kNumbers = 1024;
  const size_t wide = HWY_MIN(all.n, kNumbers), high = HWY_MAX(kNumbers / HWY_MAX(wide, 1), 1);
  ScaledCounts counts;
  for (size_t row = 0; row < all.rows; row += high) {
    for (size_t i = 0; i < all.n; i += wide) {
      Block b = all;
      b.src += row * all.src_stride + i;
      b.dst = static_cast<Code<F>*>(all.dst) + row * all.dst_stride + i;
      b.rows = HWY_MIN(high, all.rows - row);
      b.n = HWY_MIN(wide, all.n - i);
      counts += encode_block<F>(b, scaled);
    }
  }
  return counts;
}

template <Format F>
ConvertCounts encode_stochastic_as(const float* src, void* dst, size_t n, numeric::NoiseKey key,
                                   uint32_t first) {
  const hn::ScalableTag<float> df;
  const hn::RebindToUnsigned<decltype(df)> du;
  const size_t lanes = hn::Lanes(df);
  RangeCounts<decltype(df)> counts;
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto random = noise(du, key, first + static_cast<uint32_t>(i));
    store_stochastic_counted<F>(df, hn::LoadU(df, src + i), random, dst, i, counts);
  }
  if (i < n) {
    const auto random = noise(du, key, first + static_cast<uint32_t>(i));
    const auto v = load_n_as_f32<Format::kF32>(df, src, i, n - i);
    store_n_stochastic_counted<F>(df, v, random, dst, i, n - i, counts);
  }
  return {counts.overflow_total(), counts.underflow_total()};
}

// Calls visit with the format as a constant.
template <class Visit>
HWY_INLINE auto by_format(Format format, const Visit& visit) {
  switch (format) {
    case Format::kF32:
      break;
    case Format::kBf16:
      return visit(std::integral_constant<Format, Format::kBf16>());
    case Format::kF16:
      return visit(std::integral_constant<Format, Format::kF16>());
    case Format::kF16e6:
      return visit(std::integral_constant<Format, Format::kF16e6>());
    case Format::kF8e4b4:
      return visit(std::integral_constant<Format, Format::kF8e4b4>());
    case Format::kF8e5:
      return visit(std::integral_constant<Format, Format::kF8e5>());
  }
  return visit(std::integral_constant<Format, Format::kF32>());
}

void decode_any(Format format, const void* src, float* dst, size_t n) {
  by_format(format, [&](auto f) HWY_ATTR { decode_as<f.value>(src, dst, n, Unscaled()); });
}

void decode_scaled_any(Format format, const void* src, float* dst, size_t n, float factor) {
  by_format(format, [&](auto f) HWY_ATTR { decode_as<f.value>(src, dst, n, Scaled{factor}); });
}

uint64_t round_to_any(Format format, const float* src, float* dst, size_t n) {
  return by_format(format, [&](auto f) HWY_ATTR { return round_to_as<f.value>(src, dst, n); });
}

ScaledCounts encode_any(Format format, const Block& block, float scale) {
  return by_format(format, [&](auto f) HWY_ATTR {
    return scale == 1.0f ? encode_as<f.value>(block, Unscaled())
                         : encode_as<f.value>(block, Scaled{scale});
  });
}

ConvertCounts encode_stochastic_any(Format format, const float* src, void* dst, size_t n,
                                    numeric::NoiseKey key, uint32_t first) {
  return by_format(format, [&](auto f) HWY_ATTR {
    return encode_stochastic_as<f.value>(src, dst, n, key, first);
  });
}

}  // namespace
}  // namespace tri::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tri::simd {

HWY_EXPORT(decode_any);
HWY_EXPORT(decode_scaled_any);
HWY_EXPORT(round_to_any);
HWY_EXPORT(encode_any);
HWY_EXPORT(encode_stochastic_any);

void decode(numeric::Format format, const void* src, float* dst, size_t n) noexcept {
  HWY_DYNAMIC_DISPATCH(decode_any)(format, src, dst, n);
}

ConvertCounts encode(numeric::Format format, const float* src, void* dst, size_t n) noexcept {
  return encode_rows(format, src, n, dst, n, 1, n, 1.0f).lost;
}

ScaledCounts encode_rows(numeric::Format format, const float* src, size_t src_stride, void* dst,
                         size_t dst_stride, size_t rows, size_t n, float scale) noexcept {
  return HWY_DYNAMIC_DISPATCH(encode_any)(
      format, {src, src_stride, dst, dst_stride, rows, n, multiplies_bf16()}, scale);
}

void decode_scaled(numeric::Format format, const void* src, float* dst, size_t n,
                   float factor) noexcept {
  HWY_DYNAMIC_DISPATCH(decode_scaled_any)(format, src, dst, n, factor);
}

uint64_t round_to(numeric::Format format, const float* src, float* dst, size_t n) noexcept {
  return HWY_DYNAMIC_DISPATCH(round_to_any)(format, src, dst, n);
}

ConvertCounts encode_stochastic(numeric::Format format, const float* src, void* dst, size_t n,
                                numeric::NoiseKey key, uint32_t first) noexcept {
  return HWY_DYNAMIC_DISPATCH(encode_stochastic_any)(format, src, dst, n, key, first);
}

}  // namespace tri::simd
#endif  // HWY_ONCE
