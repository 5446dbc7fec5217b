// ops/global_avg_pool/global_pool_simd.cpp; contract in global_pool_kernel.h. Never throws,
// allocates or logs.
#include "ops/global_avg_pool/global_pool_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/global_avg_pool/global_pool_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"         // after foreach_target.h
#include "ops/window/channels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tri::ops::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

void add_pixels(const float* HWY_RESTRICT pixels, int64_t pixel, int64_t count, int64_t channels,
                float* HWY_RESTRICT sums) {
  for_channels(channels, [=](auto d, int64_t c) TRI_LANES {
    auto sum = hn::Zero(d);
    for (int64_t i = 0; i < count; ++i) sum = hn::Add(sum, hn::LoadU(d, pixels + i * pixel + c));
    hn::StoreU(hn::Add(hn::LoadU(d, sums + c), sum), d, sums + c);
  });
}

}  // namespace
}  // namespace tri::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tri::ops {
HWY_EXPORT(add_pixels);

void add_pixels(const float* pixels, int64_t pixel, int64_t count, int64_t channels,
                float* sums) noexcept {
  HWY_DYNAMIC_DISPATCH(add_pixels)(pixels, pixel, count, channels, sums);
}
}  // namespace tri::ops
#endif  // HWY_ONCE
