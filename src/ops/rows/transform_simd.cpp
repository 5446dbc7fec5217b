// ops/rows/transform_simd.cpp; contract in transform_kernel.h. Never throws, allocates or logs.
#include "ops/rows/transform_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/rows/transform_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"         // after foreach_target.h
#include "ops/rows/transform-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tri::ops::HWY_NAMESPACE {
namespace {
template <bool kFactors, class D, int kN>
HWY_INLINE void multiply(D d, const TransformParams& p, int64_t c, Vectors<D, kN>& x) {
  if constexpr (!kFactors) return;
  for (int i = 0; i < kN; ++i, c += static_cast<int64_t>(hn::Lanes(d))) {
    if (p.channel_factor != nullptr) x[i] = hn::Mul(x[i], hn::LoadU(d, p.channel_factor + c));
    x[i] = hn::Mul(x[i], hn::Set(d, p.sample_factor));
  }
}

template <class D, int kN>
HWY_INLINE void add_vectors(D d, const float* addend, Vectors<D, kN>& x) {
  for (int i = 0; i < kN; ++i, addend += hn::Lanes(d)) x[i] = hn::Add(x[i], hn::LoadU(d, addend));
}

bool has_factors(const TransformParams& p) {
  return p.channel_factor != nullptr || p.sample_factor != 1.0f;
}

// Calls body.operator()<kFirst, kSecond>() for two facts known at run time.
template <class Body>
HWY_INLINE void for_facts(bool first, bool second, Body body) {
  if (first)
    second ? body.template operator()<true, true>() : body.template operator()<true, false>();
  else
    second ? body.template operator()<false, true>() : body.template operator()<false, false>();
}

template <Format kFormat, class A, bool kNorm, bool kFactors>
void transform(const TransformParams p, const RowsAt& src, float* dst, int64_t dst_stride,
               int64_t rows, int64_t channels) {
  constexpr bool kAhead = A::kActivation != Activation::kNone || kNorm || kFactors;
  for (int64_t i = 0; i < rows; ++i) {
    const RowAt<kFormat> from(src, i);
    float* to = dst + i * dst_stride;
    for_channels_side_by_side(channels, [=](auto d, int64_t c, auto vectors) TRI_LANES {
      auto x = from.template load<vectors(), kAhead>(d, c);
      normalise<kNorm>(d, p, c, x);
      activate<A>(d, x);
      multiply<kFactors>(d, p, c, x);
      store(d, x, to + c);
    });
  }
}

template <Format kFormat, class A, bool kNorm>
void transform_with_slopes(const TransformParams p, const RowsAt& src, float* dst, float* slopes,
                           int64_t stride, int64_t rows, int64_t channels) {
  for (int64_t i = 0; i < rows; ++i) {
    const RowAt<kFormat> from(src, i);
    float *to = dst + i * stride, *slopes_to = slopes + i * stride;
    for_channels_side_by_side(channels, [=](auto d, int64_t c, auto vectors) TRI_LANES {
      auto x = from.template load<vectors()>(d, c);
      normalise<kNorm>(d, p, c, x);
      const auto slope = activate_with_slope<A>(d, x);
      store(d, x, to + c);
      store(d, slope, slopes_to + c);
    });
  }
}

// kSums: batch norm's statistics are not frozen, b, c and mean are there.
template <Format kGrad, Format kFormat, class A, bool kSums, bool kFactors>
void transform_grad(const GradParams p, const RowsAt& grad, const RowsAt& stored, float* dst,
                    int64_t dst_stride, int64_t rows, int64_t channels) {
  constexpr bool kActivates = A::kActivation != Activation::kNone;
  constexpr bool kReadsStored = kActivates || kSums;
  for (int64_t i = 0; i < rows; ++i) {
    const RowAt<kGrad> g(grad, i);
    const RowAt<kFormat> x(stored, i);
    float* to = dst + i * dst_stride;
    for_channels_side_by_side(channels, [=](auto d, int64_t c, auto vectors) TRI_LANES {
      auto value = g.template load<vectors()>(d, c);
      multiply<kFactors>(d, p.value, c, value);
      if (kFactors && p.channel_addend != nullptr) add_vectors(d, p.channel_addend + c, value);
      Vectors<decltype(d), vectors()> at;
      if constexpr (kReadsStored) at = x.template load<vectors()>(d, c);
      if constexpr (kActivates) {
        auto z = at;
        if (p.value.scale != nullptr) normalise<true>(d, p.value, c, z);
        activate_grad<A>(d, z, value);
      }
      for (int v = 0; v < vectors(); ++v, c += static_cast<int64_t>(hn::Lanes(d))) {
        if (kSums || p.a != nullptr) value[v] = hn::Mul(value[v], hn::LoadU(d, p.a + c));
        if constexpr (kSums)
          value[v] = hn::Add(value[v], hn::MulAdd(hn::Sub(at[v], hn::LoadU(d, p.mean + c)),
                                                  hn::LoadU(d, p.b + c), hn::LoadU(d, p.c + c)));
        hn::StoreU(value[v], d, to + c);
      }
    });
  }
}

void add_floats(const float* HWY_RESTRICT parts, int64_t count, float* HWY_RESTRICT sums) {
  for_channels(count, [=](auto d, int64_t i) TRI_LANES {
    hn::StoreU(hn::Add(hn::LoadU(d, sums + i), hn::LoadU(d, parts + i)), d, sums + i);
  });
}

void add_products(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, int64_t rows,
                  int64_t channels, float* HWY_RESTRICT sums) {
  for_channels_side_by_side(channels, [=](auto d, int64_t c, auto vectors) TRI_LANES {
    Vectors<decltype(d), vectors()> sum;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    for (int v = 0; v < vectors(); ++v) sum[v] = hn::LoadU(d, sums + c + v * lanes);
    for (int64_t i = 0, row = c; i < rows; ++i, row += channels)
      for (int v = 0; v < vectors(); ++v)
        sum[v] = hn::MulAdd(hn::LoadU(d, a + row + v * lanes), hn::LoadU(d, b + row + v * lanes),
                            sum[v]);
    store(d, sum, sums + c);
  });
}

void multiply_rows(const float* HWY_RESTRICT factor, int64_t rows, int64_t channels,
                   float* HWY_RESTRICT values) {
  for_channels(channels, [=](auto d, int64_t c) TRI_LANES {
    const auto f = hn::LoadU(d, factor + c);
    for (int64_t i = 0, at = c; i < rows; ++i, at += channels)
      hn::StoreU(hn::Mul(hn::LoadU(d, values + at), f), d, values + at);
  });
}

void transform_rows(const TransformParams& p, const RowsAt& src, float* dst, int64_t dst_stride,
                    int64_t rows, int64_t channels) {
  for_kind(src.format, p, [&]<Format kFormat, class A>() {
    for_facts(p.scale != nullptr, has_factors(p), [&]<bool kNorm, bool kFactors>() {
      transform<kFormat, A, kNorm, kFactors>(p, src, dst, dst_stride, rows, channels);
    });
  });
}

void transform_rows_with_slopes(const TransformParams& p, const RowsAt& src, float* dst,
                                float* slopes, int64_t stride, int64_t rows, int64_t channels) {
  for_kind(src.format, p, [&]<Format kFormat, class A>() {
    if (p.scale != nullptr)
      transform_with_slopes<kFormat, A, true>(p, src, dst, slopes, stride, rows, channels);
    else
      transform_with_slopes<kFormat, A, false>(p, src, dst, slopes, stride, rows, channels);
  });
}

void transform_grad_rows(const GradParams& p, const RowsAt& grad, const RowsAt& stored, float* dst,
                         int64_t dst_stride, int64_t rows, int64_t channels) {
  for_kind(stored.format, p.value, [&]<Format kFormat, class A>() {
    const bool factors = has_factors(p.value) || p.channel_addend != nullptr;
    for_facts(p.b != nullptr, factors, [&]<bool kSums, bool kFactors>() {
      if (grad.format == kFormat)
        transform_grad<kFormat, kFormat, A, kSums, kFactors>(p, grad, stored, dst, dst_stride, rows,
                                                             channels);
      else
        transform_grad<Format::kF32, kFormat, A, kSums, kFactors>(p, grad, stored, dst, dst_stride,
                                                                  rows, channels);
    });
  });
}

}  // namespace
}  // namespace tri::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tri::ops {
HWY_EXPORT(add_floats);
HWY_EXPORT(add_products);
HWY_EXPORT(multiply_rows);
HWY_EXPORT(transform_rows);
HWY_EXPORT(transform_rows_with_slopes);
HWY_EXPORT(transform_grad_rows);

void add_floats(const float* parts, int64_t count, float* sums) noexcept {
  HWY_DYNAMIC_DISPATCH(add_floats)(parts, count, sums);
}

void add_products(const float* a, const float* b, int64_t rows, int64_t channels,
                  float* sums) noexcept {
  HWY_DYNAMIC_DISPATCH(add_products)(a, b, rows, channels, sums);
}

void multiply_rows(const float* factor, int64_t rows, int64_t channels, float* values) noexcept {
  HWY_DYNAMIC_DISPATCH(multiply_rows)(factor, rows, channels, values);
}

void transform_rows(const TransformParams& params, const RowsAt& src, float* dst,
                    int64_t dst_stride, int64_t rows, int64_t channels) noexcept {
  HWY_DYNAMIC_DISPATCH(transform_rows)(params, src, dst, dst_stride, rows, channels);
}

void transform_rows_with_slopes(const TransformParams& params, const RowsAt& src, float* dst,
                                float* slopes, int64_t stride, int64_t rows,
                                int64_t channels) noexcept {
  HWY_DYNAMIC_DISPATCH(transform_rows_with_slopes)
  (params, src, dst, slopes, stride, rows, channels);
}

void transform_grad_rows(const GradParams& params, const RowsAt& grad, const RowsAt& stored,
                         float* dst, int64_t dst_stride, int64_t rows, int64_t channels) noexcept {
  HWY_DYNAMIC_DISPATCH(transform_grad_rows)
  (params, grad, stored, dst, dst_stride, rows, channels);
}
}  // namespace tri::ops
#endif  // HWY_ONCE
