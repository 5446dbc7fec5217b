// ops/rows/merge_simd.cpp; contract in merge_kernel.h. Never throws, allocates or logs.
#include "ops/rows/merge_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/rows/merge_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"         // after foreach_target.h
#include "simd/split-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tri::ops::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
namespace sm = tri::simd::HWY_NAMESPACE;
using numeric::SplitScheme;

template <SplitScheme kScheme>
void merge(const uint16_t* high, const void* low, float* dst, size_t n) {
  const hn::ScalableTag<float> d;
  const auto* rest = static_cast<const sm::Extra<kScheme>*>(low);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d))
    hn::StoreU(sm::merge_load<kScheme>(d, high, rest, i), d, dst + i);
  const hn::CappedTag<float, 1> d1;
  for (; i < n; ++i) hn::StoreU(sm::merge_load<kScheme>(d1, high, rest, i), d1, dst + i);
}

void merge_weights(SplitScheme scheme, const uint16_t* high, const void* low, float* dst,
                   size_t n) {
  switch (scheme) {
    case SplitScheme::kBf16Plus8:
      return merge<SplitScheme::kBf16Plus8>(high, low, dst, n);
    case SplitScheme::kBf16Plus16:
      return merge<SplitScheme::kBf16Plus16>(high, low, dst, n);
    case SplitScheme::kF16Plus8:
      return merge<SplitScheme::kF16Plus8>(high, low, dst, n);
  }
}

}  // namespace
}  // namespace tri::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tri::ops {
HWY_EXPORT(merge_weights);

void merge_weights(numeric::SplitScheme scheme, const uint16_t* high, const void* low, float* dst,
                   size_t n) noexcept {
  HWY_DYNAMIC_DISPATCH(merge_weights)(scheme, high, low, dst, n);
}
}  // namespace tri::ops
#endif  // HWY_ONCE
