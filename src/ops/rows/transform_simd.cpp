// ops/rows/transform_simd.cpp; contract in transform_kernel.h. Never throws, allocates or logs.
#include <type_traits>

#include "ops/rows/transform_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/rows/transform_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"         // after foreach_target.h
#include "ops/window/channels-inl.h"
#include "simd/convert-inl.h"
#include "simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tri::ops::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
namespace sm = tri::simd::HWY_NAMESPACE;
using numeric::Format;

// Expensive activations go through so many vectors side by side.
constexpr int kSide = 4;

template <class D, int kN>
using Vectors = sm::Vectors<D, kN>;

// An activation and how exact it is.
template <Activation kIs, sm::Accuracy kAs = sm::Accuracy::kFull>
struct Act {
  static constexpr Activation kActivation = kIs;
  static constexpr sm::Accuracy kAccuracy = kAs;
};

template <class A, class D, int kN>
HWY_INLINE void activate(D d, Vectors<D, kN>& z) {
  constexpr Activation kActivation = A::kActivation;
  if constexpr (kActivation == Activation::kSilu) z = sm::silu<A::kAccuracy>(d, z);
  if constexpr (kActivation == Activation::kSigmoid) z = sm::sigmoid<A::kAccuracy>(d, z);
  for (int i = 0; i < kN; ++i) {
    // In this order x86 lets a NaN through.
    if constexpr (kActivation == Activation::kRelu) z[i] = hn::Max(hn::Zero(d), z[i]);
    if constexpr (kActivation == Activation::kRelu6)
      z[i] = hn::Min(hn::Set(d, 6.0f), hn::Max(hn::Zero(d), z[i]));
  }
}

// grad *= activation'(z), with PyTorch's choices at the corners: 0 at z = 0 and at z = 6.
template <class A, class D, int kN>
HWY_INLINE void activate_grad(D d, const Vectors<D, kN>& z, Vectors<D, kN>& grad) {
  const auto zero = hn::Zero(d), six = hn::Set(d, 6.0f), one = hn::Set(d, 1.0f);
  constexpr Activation kActivation = A::kActivation;
  Vectors<D, kN> slope;
  if constexpr (kActivation == Activation::kSilu) slope = sm::silu_derivative<A::kAccuracy>(d, z);
  if constexpr (kActivation == Activation::kSigmoid) {
    slope = sm::sigmoid<A::kAccuracy>(d, z);
    for (int i = 0; i < kN; ++i) slope[i] = hn::Mul(slope[i], hn::Sub(one, slope[i]));
  }
  for (int i = 0; i < kN; ++i) {
    if constexpr (kActivation == Activation::kRelu)
      grad[i] = hn::IfThenElseZero(hn::Gt(z[i], zero), grad[i]);
    else if constexpr (kActivation == Activation::kRelu6)
      grad[i] = hn::IfThenElseZero(hn::And(hn::Gt(z[i], zero), hn::Lt(z[i], six)), grad[i]);
    else
      grad[i] = hn::Mul(grad[i], slope[i]);
  }
}

// Calls body(d, c, vectors) over all channels, vectors a compile-time constant: kSide at first,
// then single ones, then single lanes.
template <class Body>
HWY_INLINE void for_channels_side_by_side(int64_t channels, Body body) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + kSide * lanes <= channels; c += kSide * lanes)
    body(d, c, std::integral_constant<int, kSide>());
  for (; c + lanes <= channels; c += lanes) body(d, c, std::integral_constant<int, 1>());
  for_left_channels(c, channels, [=](auto part, int64_t at) TRI_LANES {
    body(part, at, std::integral_constant<int, 1>());
  });
}

// One row of a tensor where it lies.
template <Format kFormat>
struct RowAt {
  RowAt(const RowsAt& rows, int64_t i)
      : data(static_cast<const sm::Code<kFormat>*>(rows.data) + i * rows.stride),
        factor(rows.factor) {}
  template <int kN, class D>
  HWY_INLINE Vectors<D, kN> load(D d, int64_t c) const {
    Vectors<D, kN> x;
    for (int i = 0; i < kN; ++i, c += static_cast<int64_t>(hn::Lanes(d))) {
      x[i] = sm::load_as_f32<kFormat>(d, data, static_cast<size_t>(c));
      if constexpr (kFormat == Format::kF16) x[i] = hn::Mul(x[i], hn::Set(d, factor));
    }
    return x;
  }
  const sm::Code<kFormat>* data;
  float factor;
};

template <int kN, class D>
HWY_INLINE void store(D d, const Vectors<D, kN>& x, float* to) {
  for (int i = 0; i < kN; ++i) hn::StoreU(x[i], d, to + i * static_cast<int64_t>(hn::Lanes(d)));
}

// What a transform does beside its activation, settled once per call: a test in the loop would cost
// as much as a norm does.
template <bool kNorm, class D, int kN>
HWY_INLINE void normalise(D d, const TransformParams& p, int64_t c, Vectors<D, kN>& x) {
  if constexpr (!kNorm) return;
  for (int i = 0; i < kN; ++i, c += static_cast<int64_t>(hn::Lanes(d)))
    x[i] = hn::MulAdd(x[i], hn::LoadU(d, p.scale + c), hn::LoadU(d, p.shift + c));
}

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
  for (int64_t i = 0; i < rows; ++i) {
    const RowAt<kFormat> from(src, i);
    float* to = dst + i * dst_stride;
    for_channels_side_by_side(channels, [=](auto d, int64_t c, auto vectors) TRI_LANES {
      auto x = from.template load<vectors()>(d, c);
      normalise<kNorm>(d, p, c, x);
      activate<A>(d, x);
      multiply<kFactors>(d, p, c, x);
      store(d, x, to + c);
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

// Calls body.operator()<kFormat, A>().
template <Format kFormat, class Body>
HWY_INLINE void for_activation(const TransformParams& p, Body body) {
#if HWY_TARGET <= HWY_AVX3  // elsewhere both are the same
  constexpr auto kOfHalf = sm::Accuracy::kOfHalf;
  if (p.of_half && p.activation == Activation::kSilu)
    return body.template operator()<kFormat, Act<Activation::kSilu, kOfHalf>>();
  if (p.of_half && p.activation == Activation::kSigmoid)
    return body.template operator()<kFormat, Act<Activation::kSigmoid, kOfHalf>>();
#endif
  switch (p.activation) {
    case Activation::kNone:
      return body.template operator()<kFormat, Act<Activation::kNone>>();
    case Activation::kRelu:
      return body.template operator()<kFormat, Act<Activation::kRelu>>();
    case Activation::kRelu6:
      return body.template operator()<kFormat, Act<Activation::kRelu6>>();
    case Activation::kSilu:
      return body.template operator()<kFormat, Act<Activation::kSilu>>();
    case Activation::kSigmoid:
      return body.template operator()<kFormat, Act<Activation::kSigmoid>>();
  }
}
template <class Body>
HWY_INLINE void for_kind(Format format, const TransformParams& p, Body body) {
  if (format == Format::kBf16)
    for_activation<Format::kBf16>(p, body);
  else if (format == Format::kF16)
    for_activation<Format::kF16>(p, body);
  else
    for_activation<Format::kF32>(p, body);
}

void transform_rows(const TransformParams& p, const RowsAt& src, float* dst, int64_t dst_stride,
                    int64_t rows, int64_t channels) {
  for_kind(src.format, p, [&]<Format kFormat, class A>() {
    for_facts(p.scale != nullptr, has_factors(p), [&]<bool kNorm, bool kFactors>() {
      transform<kFormat, A, kNorm, kFactors>(p, src, dst, dst_stride, rows, channels);
    });
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

void transform_grad_rows(const GradParams& params, const RowsAt& grad, const RowsAt& stored,
                         float* dst, int64_t dst_stride, int64_t rows, int64_t channels) noexcept {
  HWY_DYNAMIC_DISPATCH(transform_grad_rows)
  (params, grad, stored, dst, dst_stride, rows, channels);
}
}  // namespace tri::ops
#endif  // HWY_ONCE
