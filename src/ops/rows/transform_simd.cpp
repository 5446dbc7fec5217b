// ops/rows/transform_simd.cpp; contract in transform_kernel.h. Never throws, allocates or logs.
#include <cmath>
#include <type_traits>

#include "ops/rows/transform_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/rows/transform_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"         // after foreach_target.h
#include "ops/window/channels-inl.h"
#include "simd/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tri::ops::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
namespace sm = tri::simd::HWY_NAMESPACE;

// Expensive activations go through so many vectors side by side.
constexpr int kSide = 4;

template <class D, int kN>
using Vectors = sm::Vectors<D, kN>;

template <Activation kActivation, class D, int kN>
HWY_INLINE void activate(D d, Vectors<D, kN>& z) {
  if constexpr (kActivation == Activation::kSilu) z = sm::silu(d, z);
  if constexpr (kActivation == Activation::kSigmoid) z = sm::sigmoid(d, z);
  for (int i = 0; i < kN; ++i) {
    // In this order x86 lets a NaN through.
    if constexpr (kActivation == Activation::kRelu) z[i] = hn::Max(hn::Zero(d), z[i]);
    if constexpr (kActivation == Activation::kRelu6)
      z[i] = hn::Min(hn::Set(d, 6.0f), hn::Max(hn::Zero(d), z[i]));
  }
}

// grad *= activation'(z), with PyTorch's choices at the corners: 0 at z = 0 and at z = 6.
template <Activation kActivation, class D, int kN>
HWY_INLINE void activate_grad(D d, const Vectors<D, kN>& z, Vectors<D, kN>& grad) {
  const auto zero = hn::Zero(d), six = hn::Set(d, 6.0f), one = hn::Set(d, 1.0f);
  Vectors<D, kN> slope;
  if constexpr (kActivation == Activation::kSilu) slope = sm::silu_derivative(d, z);
  if constexpr (kActivation == Activation::kSigmoid) {
    slope = sm::sigmoid(d, z);
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
  for (; c < channels; ++c) body(hn::CappedTag<float, 1>(), c, std::integral_constant<int, 1>());
}

template <int kN, class D>
HWY_INLINE Vectors<D, kN> load(D d, const float* from) {
  Vectors<D, kN> x;
  for (int i = 0; i < kN; ++i) x[i] = hn::LoadU(d, from + i * static_cast<int64_t>(hn::Lanes(d)));
  return x;
}

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

template <Activation kActivation, bool kNorm, bool kFactors>
void transform(const TransformParams p, const float* src, int64_t src_stride, float* dst,
               int64_t dst_stride, int64_t rows, int64_t channels) {
  for (int64_t i = 0; i < rows; ++i) {
    const float* from = src + i * src_stride;
    float* to = dst + i * dst_stride;
    for_channels_side_by_side(channels, [=](auto d, int64_t c, auto vectors) TRI_LANES {
      auto x = load<vectors()>(d, from + c);
      normalise<kNorm>(d, p, c, x);
      activate<kActivation>(d, x);
      multiply<kFactors>(d, p, c, x);
      store(d, x, to + c);
    });
  }
}

// kSums: batch norm's statistics are not frozen, b, c and mean are there.
template <Activation kActivation, bool kSums, bool kFactors>
void transform_grad(const GradParams p, const float* grad, int64_t grad_stride, const float* stored,
                    int64_t stored_stride, float* dst, int64_t dst_stride, int64_t rows,
                    int64_t channels) {
  constexpr bool kReadsStored = kActivation != Activation::kNone || kSums;
  for (int64_t i = 0; i < rows; ++i) {
    const float* g = grad + i * grad_stride;
    const float* x = stored + i * stored_stride;
    float* to = dst + i * dst_stride;
    for_channels_side_by_side(channels, [=](auto d, int64_t c, auto vectors) TRI_LANES {
      auto value = load<vectors()>(d, g + c);
      multiply<kFactors>(d, p.value, c, value);
      Vectors<decltype(d), vectors()> at;
      if constexpr (kReadsStored) at = load<vectors()>(d, x + c);
      if constexpr (kActivation != Activation::kNone) {
        auto z = at;
        if (p.value.scale != nullptr) normalise<true>(d, p.value, c, z);
        activate_grad<kActivation>(d, z, value);
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

void scale_floats(float factor, float* HWY_RESTRICT values, int64_t count) {
  for_channels(count, [&](auto d, int64_t i) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(d, values + i), hn::Set(d, factor)), d, values + i);
  });
}

float max_abs(const float* HWY_RESTRICT values, int64_t count) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto most = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) most = hn::Max(most, hn::Abs(hn::LoadU(d, values + i)));
  float largest = hn::GetLane(hn::MaxOfLanes(d, most));
  for (; i < count; ++i) largest = HWY_MAX(largest, std::fabs(values[i]));
  return largest;
}

void scale_grad_row(const float* HWY_RESTRICT value, const float* HWY_RESTRICT factor,
                    int64_t channels, float* HWY_RESTRICT grad, float* HWY_RESTRICT sums) {
  for_channels(channels, [=](auto d, int64_t c) TRI_LANES {
    const auto g = hn::LoadU(d, grad + c);
    hn::StoreU(hn::MulAdd(g, hn::LoadU(d, value + c), hn::LoadU(d, sums + c)), d, sums + c);
    hn::StoreU(hn::Mul(g, hn::LoadU(d, factor + c)), d, grad + c);
  });
}

void transform_rows(const TransformParams& p, const float* src, int64_t src_stride, float* dst,
                    int64_t dst_stride, int64_t rows, int64_t channels) {
  switch (p.activation) {
#define TRI_CASE(A)                                                                         \
  case A:                                                                                   \
    return for_facts(p.scale != nullptr, has_factors(p), [&]<bool kNorm, bool kFactors>() { \
      transform<A, kNorm, kFactors>(p, src, src_stride, dst, dst_stride, rows, channels);   \
    });
    TRI_CASE(Activation::kNone)
    TRI_CASE(Activation::kRelu)
    TRI_CASE(Activation::kRelu6)
    TRI_CASE(Activation::kSilu)
    TRI_CASE(Activation::kSigmoid)
#undef TRI_CASE
  }
}

void transform_grad_rows(const GradParams& p, const float* grad, int64_t grad_stride,
                         const float* stored, int64_t stored_stride, float* dst, int64_t dst_stride,
                         int64_t rows, int64_t channels) {
  switch (p.value.activation) {
#define TRI_CASE(A)                                                                           \
  case A:                                                                                     \
    return for_facts(p.b != nullptr, has_factors(p.value), [&]<bool kSums, bool kFactors>() { \
      transform_grad<A, kSums, kFactors>(p, grad, grad_stride, stored, stored_stride, dst,    \
                                         dst_stride, rows, channels);                         \
    });
    TRI_CASE(Activation::kNone)
    TRI_CASE(Activation::kRelu)
    TRI_CASE(Activation::kRelu6)
    TRI_CASE(Activation::kSilu)
    TRI_CASE(Activation::kSigmoid)
#undef TRI_CASE
  }
}

}  // namespace
}  // namespace tri::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tri::ops {
HWY_EXPORT(add_floats);
HWY_EXPORT(max_abs);
HWY_EXPORT(scale_floats);
HWY_EXPORT(scale_grad_row);
HWY_EXPORT(transform_rows);
HWY_EXPORT(transform_grad_rows);

void add_floats(const float* parts, int64_t count, float* sums) noexcept {
  HWY_DYNAMIC_DISPATCH(add_floats)(parts, count, sums);
}

void scale_floats(float factor, float* values, int64_t count) noexcept {
  HWY_DYNAMIC_DISPATCH(scale_floats)(factor, values, count);
}

float max_abs(const float* values, int64_t count) noexcept {
  return HWY_DYNAMIC_DISPATCH(max_abs)(values, count);
}

void scale_grad_row(const float* value, const float* factor, int64_t channels, float* grad,
                    float* sums) noexcept {
  HWY_DYNAMIC_DISPATCH(scale_grad_row)(value, factor, channels, grad, sums);
}

void transform_rows(const TransformParams& params, const float* src, int64_t src_stride, float* dst,
                    int64_t dst_stride, int64_t rows, int64_t channels) noexcept {
  HWY_DYNAMIC_DISPATCH(transform_rows)
  (params, src, src_stride, dst, dst_stride, rows, channels);
}

void transform_grad_rows(const GradParams& params, const float* grad, int64_t grad_stride,
                         const float* stored, int64_t stored_stride, float* dst, int64_t dst_stride,
                         int64_t rows, int64_t channels) noexcept {
  HWY_DYNAMIC_DISPATCH(transform_grad_rows)
  (params, grad, grad_stride, stored, stored_stride, dst, dst_stride, rows, channels);
}
}  // namespace tri::ops
#endif  // HWY_ONCE
