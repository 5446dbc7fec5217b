// ops/channel_shuffle/shuffle_simd.cpp; contract in shuffle_kernel.h. Never throws, allocates or
// logs.
#include "ops/channel_shuffle/shuffle_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/channel_shuffle/shuffle_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"         // after foreach_target.h

HWY_BEFORE_NAMESPACE();
namespace tri::ops::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// dst[2 i] = src[i], dst[2 i + 1] = src[each + i].
template <class T>
void interleave(const T* HWY_RESTRICT src, int64_t each, T* HWY_RESTRICT dst) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= each; i += lanes)
    hn::StoreInterleaved2(hn::LoadU(d, src + i), hn::LoadU(d, src + each + i), d, dst + 2 * i);
  for (; i < each; ++i) {
    dst[2 * i] = src[i];
    dst[2 * i + 1] = src[each + i];
  }
}

// The inverse.
template <class T>
void separate(const T* HWY_RESTRICT src, int64_t each, T* HWY_RESTRICT dst) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= each; i += lanes) {
    hn::Vec<decltype(d)> first, second;
    hn::LoadInterleaved2(d, src + 2 * i, first, second);
    hn::StoreU(first, d, dst + i);
    hn::StoreU(second, d, dst + each + i);
  }
  for (; i < each; ++i) {
    dst[i] = src[2 * i];
    dst[each + i] = src[2 * i + 1];
  }
}

template <class T>
void shuffle_as(const ShuffleRun& r) {
  const int64_t each = r.channels / r.groups;
  for (int64_t row = 0; row < r.rows; ++row) {
    const T* src = static_cast<const T*>(r.src) + row * r.src_stride;
    T* dst = static_cast<T*>(r.dst) + row * r.dst_stride;
    if (r.groups == 2) {
      interleave(src, each, dst);
    } else if (each == 2) {
      separate(src, r.groups, dst);
    } else {
      for (int64_t g = 0; g < r.groups; ++g)
        for (int64_t i = 0; i < each; ++i) dst[i * r.groups + g] = src[g * each + i];
    }
  }
}

void shuffle_rows(const ShuffleRun& r) {
  if (r.number_bytes == 4) return shuffle_as<uint32_t>(r);
  if (r.number_bytes == 2) return shuffle_as<uint16_t>(r);
  shuffle_as<uint8_t>(r);
}

}  // namespace
}  // namespace tri::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tri::ops {
HWY_EXPORT(shuffle_rows);
void shuffle_rows(const ShuffleRun& run) noexcept { HWY_DYNAMIC_DISPATCH(shuffle_rows)(run); }
}  // namespace tri::ops
#endif  // HWY_ONCE
