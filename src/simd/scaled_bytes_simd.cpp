#include "simd/scaled_bytes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/scaled_bytes_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"         // after foreach_target.h

HWY_BEFORE_NAMESPACE();
namespace tri::simd::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

void scale_bytes(const uint8_t* HWY_RESTRICT bytes, size_t n, const float* HWY_RESTRICT scale,
                 const float* HWY_RESTRICT shift, float* HWY_RESTRICT dst) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto value = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, bytes + i)));
    // Apart, never fused: targets without FMA must agree.
    const auto scaled = hn::Mul(value, hn::LoadU(d, scale + i));
    hn::StoreU(hn::Add(scaled, hn::LoadU(d, shift + i)), d, dst + i);
  }
  for (; i < n; ++i) dst[i] = static_cast<float>(bytes[i]) * scale[i] + shift[i];
}

}  // namespace
}  // namespace tri::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tri::simd {
HWY_EXPORT(scale_bytes);
void scale_bytes(const uint8_t* bytes, size_t n, const float* scale, const float* shift,
                 float* dst) noexcept {
  HWY_DYNAMIC_DISPATCH(scale_bytes)(bytes, n, scale, shift, dst);
}
}  // namespace tri::simd
#endif  // HWY_ONCE
