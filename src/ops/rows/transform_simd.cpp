// ops/rows/transform_simd.cpp; contract in transform_kernel.h. Never throws, allocates or logs.
#include <cmath>

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

template <Activation kActivation, class D, class V = hn::Vec<D>>
HWY_INLINE V activate(D d, V z) {
  switch (kActivation) {
    case Activation::kNone:
      return z;
    case Activation::kRelu:
      return hn::Max(hn::Zero(d), z);  // in this order x86 lets a NaN through
    case Activation::kRelu6:
      return hn::Min(hn::Set(d, 6.0f), hn::Max(hn::Zero(d), z));
    case Activation::kSilu:
      return sm::silu(d, z);
    case Activation::kSigmoid:
      return sm::sigmoid(d, z);
  }
}

// grad * activation'(z), with PyTorch's choices at the corners: 0 at z = 0 and at z = 6.
template <Activation kActivation, class D, class V = hn::Vec<D>>
HWY_INLINE V activate_grad(D d, V grad, V z) {
  switch (kActivation) {
    case Activation::kNone:
      return grad;
    case Activation::kRelu:
      return hn::IfThenElseZero(hn::Gt(z, hn::Zero(d)), grad);
    case Activation::kRelu6:
      return hn::IfThenElseZero(hn::And(hn::Gt(z, hn::Zero(d)), hn::Lt(z, hn::Set(d, 6.0f))), grad);
    case Activation::kSilu:
      return hn::Mul(grad, sm::silu_derivative(d, z));
    case Activation::kSigmoid: {
      const V s = sm::sigmoid(d, z);
      return hn::Mul(grad, hn::Mul(s, hn::Sub(hn::Set(d, 1.0f), s)));
    }
  }
}

// What a transform does beside its activation, settled once per call: a test in the loop would cost
// as much as a norm does.
template <bool kNorm, class D>
HWY_INLINE hn::Vec<D> normalised(D d, const TransformParams& p, hn::Vec<D> x, int64_t c) {
  if constexpr (!kNorm) return x;
  return hn::MulAdd(x, hn::LoadU(d, p.scale + c), hn::LoadU(d, p.shift + c));
}

template <bool kFactors, class D>
HWY_INLINE hn::Vec<D> factored(D d, const TransformParams& p, hn::Vec<D> x, int64_t c) {
  if constexpr (!kFactors) return x;
  if (p.channel_factor != nullptr) x = hn::Mul(x, hn::LoadU(d, p.channel_factor + c));
  return hn::Mul(x, hn::Set(d, p.sample_factor));
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
    for_channels(channels, [=](auto d, int64_t c) TRI_LANES {
      const auto z = normalised<kNorm>(d, p, hn::LoadU(d, from + c), c);
      hn::StoreU(factored<kFactors>(d, p, activate<kActivation>(d, z), c), d, to + c);
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
    for_channels(channels, [=](auto d, int64_t c) TRI_LANES {
      auto value = factored<kFactors>(d, p.value, hn::LoadU(d, g + c), c);
      auto at = hn::Zero(d);
      if constexpr (kReadsStored) at = hn::LoadU(d, x + c);
      if constexpr (kActivation != Activation::kNone) {
        const auto z = p.value.scale == nullptr ? at : normalised<true>(d, p.value, at, c);
        value = activate_grad<kActivation>(d, value, z);
      }
      if (kSums || p.a != nullptr) value = hn::Mul(value, hn::LoadU(d, p.a + c));
      if constexpr (kSums)
        value = hn::Add(value, hn::MulAdd(hn::Sub(at, hn::LoadU(d, p.mean + c)),
                                          hn::LoadU(d, p.b + c), hn::LoadU(d, p.c + c)));
      hn::StoreU(value, d, to + c);
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
