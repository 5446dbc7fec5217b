// ops/channel_scale/channel_scale_simd.cpp; contract in channel_scale_kernel.h. Never throws,
// allocates or logs.
#include <algorithm>

#include "ops/channel_scale/channel_scale_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/channel_scale/channel_scale_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"         // after foreach_target.h
#include "ops/rows/transform-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tri::ops::HWY_NAMESPACE {
namespace {

// All channels of so many rows before the next ones, so that memory is read nearly in order.
constexpr int64_t kRowsTogether = 8;

// Adds rows [begin, end) to the sums.
template <Format kGrad, Format kFormat, class A>
void sum_scaled(const TransformParams p, const float* mean, const RowsAt& grad,
                const RowsAt& stored, int64_t begin, int64_t end, int64_t channels, float* sums) {
  for_channels_side_by_side<2>(channels, [=](auto d, int64_t c, auto vectors) TRI_LANES {
    constexpr int kN = vectors();
    using Several = Vectors<decltype(d), kN>;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    Several center, of_factor, sum[kFactoredSums];
    for (int v = 0; v < kN; ++v) {
      const int64_t at = c + v * lanes;
      center[v] = hn::LoadU(d, mean + at);
      of_factor[v] = hn::LoadU(d, sums + at);
      for (int64_t which = 0; which < kFactoredSums; ++which)
        sum[which][v] = hn::LoadU(d, sums + (1 + which) * channels + at);
    }
    for (int64_t i = begin; i < end; ++i) {
      auto x = RowAt<kFormat>(stored, i).template load<kN>(d, c);
      Several off;
      for (int v = 0; v < kN; ++v) off[v] = hn::Sub(x[v], center[v]);
      normalise<true>(d, p, c, x);
      auto slope = activate_with_slope<A>(d, x);
      const auto du = RowAt<kGrad>(grad, i).template load<kN>(d, c);
      for (int v = 0; v < kN; ++v) {
        of_factor[v] = hn::MulAdd(du[v], x[v], of_factor[v]);
        sum[2][v] = hn::Add(sum[2][v], slope[v]);
        sum[3][v] = hn::MulAdd(slope[v], off[v], sum[3][v]);
        slope[v] = hn::Mul(slope[v], du[v]);
        sum[0][v] = hn::Add(sum[0][v], slope[v]);
        sum[1][v] = hn::MulAdd(slope[v], off[v], sum[1][v]);
      }
    }
    store(d, of_factor, sums + c);
    for (int64_t which = 0; which < kFactoredSums; ++which)
      store(d, sum[which], sums + (1 + which) * channels + c);
  });
}

void sum_scaled_rows(const TransformParams& p, const float* mean, const RowsAt& grad,
                     const RowsAt& stored, int64_t rows, int64_t channels, float* sums) {
  std::fill_n(sums, kScaleSums * channels, 0.0f);
  for_kind(stored.format, p, [&]<Format kFormat, class A>() {
    for (int64_t begin = 0; begin < rows; begin += kRowsTogether) {
      const int64_t end = HWY_MIN(rows, begin + kRowsTogether);
      if (grad.format == kFormat)
        sum_scaled<kFormat, kFormat, A>(p, mean, grad, stored, begin, end, channels, sums);
      else
        sum_scaled<Format::kF32, kFormat, A>(p, mean, grad, stored, begin, end, channels, sums);
    }
  });
}

}  // namespace
}  // namespace tri::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tri::ops {
HWY_EXPORT(sum_scaled_rows);

void sum_scaled_rows(const TransformParams& params, const float* mean, const RowsAt& grad,
                     const RowsAt& stored, int64_t rows, int64_t channels, float* sums) noexcept {
  HWY_DYNAMIC_DISPATCH(sum_scaled_rows)(params, mean, grad, stored, rows, channels, sums);
}
}  // namespace tri::ops
#endif  // HWY_ONCE
