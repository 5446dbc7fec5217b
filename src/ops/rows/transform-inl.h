// Room: ops. Rows of a tensor as vectors of fp32 while they are read: from any format that
// converts_on_load(), normalised and activated. For the kernels that read stored tensors.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "ops/rows/transform_kernel.h"
#include "ops/window/channels-inl.h"
#include "simd/convert-inl.h"
#include "simd/math-inl.h"

// Per-target include guard.
#if defined(TRI_OPS_TRANSFORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRI_OPS_TRANSFORM_INL_H_
#undef TRI_OPS_TRANSFORM_INL_H_
#else
#define TRI_OPS_TRANSFORM_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace tri::ops::HWY_NAMESPACE {
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
  if constexpr (A::kActivation == Activation::kNone) return;
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

// z = activation(z); the derivative is returned.
template <class A, class D, int kN>
HWY_INLINE Vectors<D, kN> activate_with_slope(D d, Vectors<D, kN>& z) {
  if constexpr (A::kActivation == Activation::kSilu) {
    return sm::silu_with_derivative<A::kAccuracy>(d, z);
  } else if constexpr (A::kActivation == Activation::kSigmoid) {
    z = sm::sigmoid<A::kAccuracy>(d, z);
    Vectors<D, kN> slope;
    for (int i = 0; i < kN; ++i) slope[i] = hn::Mul(z[i], hn::Sub(hn::Set(d, 1.0f), z[i]));
    return slope;
  } else {
    Vectors<D, kN> slope;
    for (int i = 0; i < kN; ++i) slope[i] = hn::Set(d, 1.0f);
    activate_grad<A>(d, z, slope);
    activate<A>(d, z);
    return slope;
  }
}

// Calls body(d, c, vectors) over all channels, vectors a compile-time constant: kMost at first,
// then single ones, then single lanes.
template <int kMost = kSide, class Body>
HWY_INLINE void for_channels_side_by_side(int64_t channels, Body body) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + kMost * lanes <= channels; c += kMost * lanes)
    body(d, c, std::integral_constant<int, kMost>());
  for (; c + lanes <= channels; c += lanes) body(d, c, std::integral_constant<int, 1>());
  for_left_channels(c, channels, [=](auto part, int64_t at) TRI_LANES {
    body(part, at, std::integral_constant<int, 1>());
  });
}

// Note [Fetching ahead]. Between two lines of memory lie some forty instructions of a transform, so
// that a processor looks ahead over few lines by itself, and its prefetcher stops at the end of a
// page. Rows follow each other, mostly: asking for what comes so much later makes SiLU of numbers
// in memory as fast as of those in L3 (EfficientNet-B0 at 224 pixels steps 1.05 times as fast).
// Plain copies gain nothing by it, and lose where they take some channels of a row only.
constexpr size_t kAheadBytes = 2048;

template <class T>
HWY_INLINE void fetch_ahead(const T* from, size_t bytes) {
  const auto* ahead = reinterpret_cast<const std::byte*>(from) + kAheadBytes;
  for (size_t i = 0; i < bytes; i += 64) hwy::Prefetch(ahead + i);
}

// One row of a tensor where it lies.
template <Format kFormat>
struct RowAt {
  RowAt(const RowsAt& rows, int64_t i)
      : data(static_cast<const sm::Code<kFormat>*>(rows.data) + i * rows.stride),
        factor(rows.factor) {}
  template <int kN, bool kAhead = true, class D>
  HWY_INLINE Vectors<D, kN> load(D d, int64_t c) const {
    Vectors<D, kN> x;
    if constexpr (kAhead) fetch_ahead(data + c, kN * hn::Lanes(d) * sizeof(*data));
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

// Calls body.operator()<kFormat, A>().
template <Format kFormat, class Body>
HWY_INLINE void for_activation(const TransformParams& p, Body body) {
  if constexpr (sm::kHalfIsFaster) {
    constexpr auto kOfHalf = sm::Accuracy::kOfHalf;
    if (p.of_half && p.activation == Activation::kSilu)
      return body.template operator()<kFormat, Act<Activation::kSilu, kOfHalf>>();
    if (p.of_half && p.activation == Activation::kSigmoid)
      return body.template operator()<kFormat, Act<Activation::kSigmoid, kOfHalf>>();
  }
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

}  // namespace tri::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
