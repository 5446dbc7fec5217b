#include "simd/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/convert.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "simd/convert-inl.h"
#include "simd/random-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tri::simd::HWY_NAMESPACE {
namespace {

template <Format F>
void decode_as(const void* src, float* dst, size_t n) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(load_as_f32<F>(df, src, i), df, dst + i);
  if (i < n) store_n_from_f32<Format::kF32>(df, load_n_as_f32<F>(df, src, i, n - i), dst, i, n - i);
}

template <Format F>
ConvertCounts encode_as(const float* src, void* dst, size_t n) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  RangeCounts<decltype(df)> counts;
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    store_from_f32_counted<F>(df, hn::LoadU(df, src + i), dst, i, counts);
  }
  if (i < n) {
    const auto v = load_n_as_f32<Format::kF32>(df, src, i, n - i);
    store_n_from_f32_counted<F>(df, v, dst, i, n - i, counts);
  }
  return {counts.overflow_total(), counts.underflow_total()};
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

void decode_any(Format format, const void* src, float* dst, size_t n) {
  switch (format) {
    case Format::kF32:
      return decode_as<Format::kF32>(src, dst, n);
    case Format::kBf16:
      return decode_as<Format::kBf16>(src, dst, n);
    case Format::kF16:
      return decode_as<Format::kF16>(src, dst, n);
    case Format::kF16e6:
      return decode_as<Format::kF16e6>(src, dst, n);
    case Format::kF8e4b4:
      return decode_as<Format::kF8e4b4>(src, dst, n);
    case Format::kF8e5:
      return decode_as<Format::kF8e5>(src, dst, n);
  }
}

ConvertCounts encode_any(Format format, const float* src, void* dst, size_t n) {
  switch (format) {
    case Format::kF32:
      return encode_as<Format::kF32>(src, dst, n);
    case Format::kBf16:
      return encode_as<Format::kBf16>(src, dst, n);
    case Format::kF16:
      return encode_as<Format::kF16>(src, dst, n);
    case Format::kF16e6:
      return encode_as<Format::kF16e6>(src, dst, n);
    case Format::kF8e4b4:
      return encode_as<Format::kF8e4b4>(src, dst, n);
    case Format::kF8e5:
      return encode_as<Format::kF8e5>(src, dst, n);
  }
  return {};
}

ConvertCounts encode_stochastic_any(Format format, const float* src, void* dst, size_t n,
                                    numeric::NoiseKey key, uint32_t first) {
  switch (format) {
    case Format::kF32:
      return encode_stochastic_as<Format::kF32>(src, dst, n, key, first);
    case Format::kBf16:
      return encode_stochastic_as<Format::kBf16>(src, dst, n, key, first);
    case Format::kF16:
      return encode_stochastic_as<Format::kF16>(src, dst, n, key, first);
    case Format::kF16e6:
      return encode_stochastic_as<Format::kF16e6>(src, dst, n, key, first);
    case Format::kF8e4b4:
      return encode_stochastic_as<Format::kF8e4b4>(src, dst, n, key, first);
    case Format::kF8e5:
      return encode_stochastic_as<Format::kF8e5>(src, dst, n, key, first);
  }
  return {};
}

}  // namespace
}  // namespace tri::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tri::simd {

HWY_EXPORT(decode_any);
HWY_EXPORT(encode_any);
HWY_EXPORT(encode_stochastic_any);

void decode(numeric::Format format, const void* src, float* dst, size_t n) noexcept {
  HWY_DYNAMIC_DISPATCH(decode_any)(format, src, dst, n);
}

ConvertCounts encode(numeric::Format format, const float* src, void* dst, size_t n) noexcept {
  return HWY_DYNAMIC_DISPATCH(encode_any)(format, src, dst, n);
}

ConvertCounts encode_stochastic(numeric::Format format, const float* src, void* dst, size_t n,
                                numeric::NoiseKey key, uint32_t first) noexcept {
  return HWY_DYNAMIC_DISPATCH(encode_stochastic_any)(format, src, dst, n, key, first);
}

}  // namespace tri::simd
#endif  // HWY_ONCE
