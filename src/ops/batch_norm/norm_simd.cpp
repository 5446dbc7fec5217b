// ops/batch_norm/norm_simd.cpp; contract in norm_kernel.h. Never throws, allocates or logs.
#include "ops/batch_norm/norm_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/batch_norm/norm_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"         // after foreach_target.h
#include "ops/window/channels-inl.h"
#include "simd/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tri::ops::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
namespace sm = tri::simd::HWY_NAMESPACE;
using numeric::Format;

// Calls body.operator()<kVectors>(d, c) over all channels, widest first: four independent chains
// hide the latency of an addition.
template <class Body>
HWY_INLINE void for_channel_blocks(int64_t channels, Body body) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + 4 * lanes <= channels; c += 4 * lanes) body.template run<4>(d, c);
  for (; c + lanes <= channels; c += lanes) body.template run<1>(d, c);
  for_left_channels(c, channels,
                    [=](auto part, int64_t at) TRI_LANES { body.template run<1>(part, at); });
}

// Stored rows of one format.
template <Format kFormat>
struct Rows {
  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, int64_t row, int64_t c) const {
    const auto v = sm::load_as_f32<kFormat>(d, at.data, static_cast<size_t>(row * at.stride + c));
    return kFormat == Format::kF16 ? hn::Mul(v, hn::Set(d, at.factor)) : v;
  }
  RowsAt at;
};

// Distances from the mean of the first few rows instead of that of all, which is known later:
// m2 = sum of squares - (sum)^2 / n. What is subtracted is about a kGuessRows-th of the result, and
// at most n / kGuessRows times it, if just these rows stand out.
constexpr int64_t kGuessRows = 8;

template <Format kFormat>
struct Moments {
  template <int kVectors, class D>
  HWY_INLINE void run(D d, int64_t c) const {
    using V = hn::Vec<D>;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    V guess[kVectors], sum[kVectors], square[kVectors];
    const int64_t some = HWY_MIN(count, kGuessRows);
    for (int v = 0; v < kVectors; ++v) guess[v] = sum[v] = square[v] = hn::Zero(d);
    for (int64_t i = 0; i < some; ++i)
      for (int v = 0; v < kVectors; ++v)
        guess[v] = hn::Add(guess[v], rows.load(d, i, c + v * lanes));
    const V of_some = hn::Set(d, 1.0f / static_cast<float>(some));
    for (int v = 0; v < kVectors; ++v) guess[v] = hn::Mul(guess[v], of_some);
    for (int64_t i = 0; i < count; ++i) {
      for (int v = 0; v < kVectors; ++v) {
        const V off = hn::Sub(rows.load(d, i, c + v * lanes), guess[v]);
        sum[v] = hn::Add(sum[v], off);
        square[v] = hn::MulAdd(off, off, square[v]);
      }
    }
    const V share = hn::Set(d, 1.0f / static_cast<float>(count));
    for (int v = 0; v < kVectors; ++v) {
      const V off = hn::Mul(sum[v], share);
      hn::StoreU(hn::Add(guess[v], off), d, mean + c + v * lanes);
      // In this order x86 lets a NaN through.
      hn::StoreU(hn::Max(hn::Zero(d), hn::NegMulAdd(sum[v], off, square[v])), d,
                 m2 + c + v * lanes);
    }
  }
  Rows<kFormat> rows;
  int64_t count;
  float* mean;
  float* m2;
};

template <Format kGrad, Format kFormat>
struct GradSums {
  template <int kVectors, class D>
  HWY_INLINE void run(D d, int64_t c) const {
    using V = hn::Vec<D>;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    V sum[kVectors], product[kVectors], center[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      sum[v] = product[v] = hn::Zero(d);
      center[v] = hn::LoadU(d, mean + c + v * lanes);
    }
    for (int64_t i = 0; i < count; ++i) {
      for (int v = 0; v < kVectors; ++v) {
        const V g = dz.load(d, i, c + v * lanes);
        const V off = hn::Sub(y.load(d, i, c + v * lanes), center[v]);
        sum[v] = hn::Add(sum[v], g);
        product[v] = hn::MulAdd(g, off, product[v]);
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(sum[v], d, plain + c + v * lanes);
      hn::StoreU(product[v], d, centred + c + v * lanes);
    }
  }
  Rows<kGrad> dz;
  Rows<kFormat> y;
  int64_t count;
  const float* mean;
  float* plain;
  float* centred;
};

// Calls body.operator()<kFormat>().
template <class Body>
HWY_INLINE void for_format(Format format, Body body) {
  if (format == Format::kBf16)
    body.template operator()<Format::kBf16>();
  else if (format == Format::kF16)
    body.template operator()<Format::kF16>();
  else
    body.template operator()<Format::kF32>();
}

void tile_moments(const RowsAt& rows, int64_t count, int64_t channels, float* mean, float* m2) {
  for_format(rows.format, [&]<Format kFormat>() {
    for_channel_blocks(channels, Moments<kFormat>{{rows}, count, mean, m2});
  });
}

void tile_grad_sums(const RowsAt& dz, const RowsAt& y, int64_t count, int64_t channels,
                    const float* mean, float* plain, float* centred) {
  for_format(y.format, [&]<Format kFormat>() {
    if (dz.format == kFormat)
      for_channel_blocks(channels,
                         GradSums<kFormat, kFormat>{{dz}, {y}, count, mean, plain, centred});
    else
      for_channel_blocks(channels,
                         GradSums<Format::kF32, kFormat>{{dz}, {y}, count, mean, plain, centred});
  });
}

}  // namespace
}  // namespace tri::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tri::ops {
HWY_EXPORT(tile_moments);
HWY_EXPORT(tile_grad_sums);

void tile_moments(const RowsAt& rows, int64_t count, int64_t channels, float* mean,
                  float* m2) noexcept {
  HWY_DYNAMIC_DISPATCH(tile_moments)(rows, count, channels, mean, m2);
}
void tile_grad_sums(const RowsAt& dz, const RowsAt& y, int64_t count, int64_t channels,
                    const float* mean, float* plain, float* centred) noexcept {
  HWY_DYNAMIC_DISPATCH(tile_grad_sums)(dz, y, count, channels, mean, plain, centred);
}
}  // namespace tri::ops
#endif  // HWY_ONCE
