// ops/avg_pool/avg_pool_simd.cpp; contract in avg_pool_kernel.h. Never throws, allocates or logs.
#include "ops/avg_pool/avg_pool_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/avg_pool/avg_pool_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"         // after foreach_target.h
#include "ops/window/channels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tri::ops::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <bool kScaled>
HWY_INLINE void pool_column(const AvgPoolRow r, int64_t src, int64_t taps, float share,
                            float* HWY_RESTRICT dst) {
  for_channels_overlapping(r.channels, [=](auto d, int64_t c) TRI_LANES {
    auto sum = hn::Zero(d);
    for (int64_t row = 0; row < r.src_count; ++row) {
      const float* HWY_RESTRICT x = r.src[row] + src * r.src_pixel + c;
      for (int64_t t = 0; t < taps; ++t) {
        const auto value = hn::LoadU(d, x + t * r.src_pixel);
        if constexpr (kScaled) {
          const float factor = r.src_row_factor[row] * r.src_column_factor[src + t];
          sum = hn::MulAdd(value, hn::Set(d, factor), sum);
        } else {
          sum = hn::Add(sum, value);
        }
      }
    }
    hn::StoreU(hn::Mul(sum, hn::Set(d, share)), d, dst + c);
  });
}

void avg_pool_row(const AvgPoolRow& r) {
  for (size_t at = 0; at < r.run_count; ++at) {
    const ColumnRun& run = r.runs[at];
    for (int64_t i = 0; i < run.count; ++i) {
      const int64_t src = run.src + i * r.src_step, column = run.dst + i * r.dst_step;
      float* dst = r.dst + column * r.dst_pixel;
      const float share =
          r.dst_column_factor == nullptr ? 1.0f : r.dst_row_factor * r.dst_column_factor[column];
      if (r.src_column_factor == nullptr)
        pool_column<false>(r, src, run.taps, share, dst);
      else
        pool_column<true>(r, src, run.taps, share, dst);
    }
  }
}

}  // namespace
}  // namespace tri::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tri::ops {
HWY_EXPORT(avg_pool_row);

void avg_pool_row(const AvgPoolRow& row) noexcept { HWY_DYNAMIC_DISPATCH(avg_pool_row)(row); }
}  // namespace tri::ops
#endif  // HWY_ONCE
