// ops/max_pool/max_pool_simd.cpp; contract in max_pool_kernel.h. Never throws, allocates or logs.
#include "ops/max_pool/max_pool_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/max_pool/max_pool_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"         // after foreach_target.h
#include "ops/window/channels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tri::ops::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// kTaps horizontal taps, or run.taps if it is 0.
template <int kTaps>
HWY_INLINE void pool_run(const MaxPoolRow r, const ColumnRun run) {
  const int64_t taps = kTaps == 0 ? run.taps : kTaps;
  for (int64_t i = 0; i < run.count; ++i) {
    const int64_t src = (run.src + i * r.src_step) * r.src_pixel;
    float* HWY_RESTRICT dst = r.dst + (run.dst + i) * r.dst_pixel;
    uint8_t* argmax = r.argmax == nullptr ? nullptr : r.argmax + (run.dst + i) * r.argmax_pixel;
    for_channels_overlapping(r.channels, [=](auto d, int64_t c) TRI_LANES {
      const hn::RebindToSigned<decltype(d)> di;
      const hn::Rebind<uint8_t, decltype(d)> d8;
      auto best = hn::LoadU(d, r.src[0] + src + c);
      auto index = hn::Set(di, static_cast<int32_t>(r.first_tap + run.k));
      for (int64_t row = 0; row < r.src_count; ++row) {
        const float* HWY_RESTRICT x = r.src[row] + src + c;
        const auto tap = static_cast<int32_t>(r.first_tap + row * r.kernel_w + run.k);
        for (int64_t t = 0; t < taps; ++t) {
          const auto value = hn::LoadU(d, x + t * r.src_pixel);
          const auto wins = hn::Or(hn::Gt(value, best), hn::IsNaN(value));
          best = hn::IfThenElse(wins, value, best);
          index = hn::IfThenElse(hn::RebindMask(di, wins),
                                 hn::Set(di, tap + static_cast<int32_t>(t)), index);
        }
      }
      hn::StoreU(best, d, dst + c);
      if (argmax != nullptr) hn::StoreU(hn::DemoteTo(d8, index), d8, argmax + c);
    });
  }
}

void max_pool_row(const MaxPoolRow& r) {
  for (size_t i = 0; i < r.run_count; ++i) {
    switch (r.runs[i].taps) {
      case 2:
        pool_run<2>(r, r.runs[i]);
        break;
      case 3:
        pool_run<3>(r, r.runs[i]);
        break;
      default:
        pool_run<0>(r, r.runs[i]);
    }
  }
}

HWY_INLINE void grad_run(const MaxPoolGradRow r, const ColumnRun run) {
  for (int64_t i = 0; i < run.count; ++i) {
    const int64_t src = run.src + i * r.src_step;
    float* HWY_RESTRICT dst = r.dst + (run.dst + i * r.dst_step) * r.dst_pixel;
    for_channels_overlapping(r.channels, [=](auto d, int64_t c) TRI_LANES {
      const hn::RebindToSigned<decltype(d)> di;
      const hn::Rebind<uint8_t, decltype(d)> d8;
      auto sum = hn::Zero(d);
      for (int64_t row = 0; row < r.grad_count; ++row) {
        const float* HWY_RESTRICT grad = r.grad[row] + src * r.grad_pixel + c;
        const uint8_t* HWY_RESTRICT argmax =
            r.argmax + row * r.argmax_row + src * r.argmax_pixel + c;
        const int64_t tap = r.first_tap + row * r.tap_row + run.k;
        for (int64_t t = 0; t < run.taps; ++t) {
          const auto chosen = hn::PromoteTo(di, hn::LoadU(d8, argmax + t * r.argmax_pixel));
          const auto here = hn::Set(di, static_cast<int32_t>(tap + t * r.tap_column));
          const auto g = hn::LoadU(d, grad + t * r.grad_pixel);
          sum = hn::Add(sum, hn::IfThenElseZero(hn::RebindMask(d, hn::Eq(chosen, here)), g));
        }
      }
      hn::StoreU(sum, d, dst + c);
    });
  }
}

void max_pool_grad_row(const MaxPoolGradRow& r) {
  for (size_t i = 0; i < r.run_count; ++i) grad_run(r, r.runs[i]);
}

}  // namespace
}  // namespace tri::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tri::ops {
HWY_EXPORT(max_pool_row);
HWY_EXPORT(max_pool_grad_row);

void max_pool_row(const MaxPoolRow& row) noexcept { HWY_DYNAMIC_DISPATCH(max_pool_row)(row); }
void max_pool_grad_row(const MaxPoolGradRow& row) noexcept {
  HWY_DYNAMIC_DISPATCH(max_pool_grad_row)(row);
}
}  // namespace tri::ops
#endif  // HWY_ONCE
