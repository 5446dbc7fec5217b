#include <algorithm>
#include <bit>
#include <cmath>

#include "simd/finite.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/finite_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"         // after foreach_target.h

HWY_BEFORE_NAMESPACE();
namespace tri::simd::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// x - x is +0 for every number and NaN for everything else.
bool all_finite(const float* HWY_RESTRICT values, size_t n) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const size_t lanes = hn::Lanes(d);
  auto found = hn::Zero(du);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto x = hn::LoadU(d, values + i);
    found = hn::Or(found, hn::BitCast(du, hn::Sub(x, x)));
  }
  bool finite = hn::AllTrue(du, hn::Eq(found, hn::Zero(du)));
  for (; i < n; ++i) finite = finite && std::isfinite(values[i]);
  return finite;
}

uint32_t largest_magnitude(const float* HWY_RESTRICT values, size_t n) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const size_t lanes = hn::Lanes(d);
  auto largest = hn::Zero(di);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes)
    largest = hn::Max(largest, hn::BitCast(di, hn::Abs(hn::LoadU(d, values + i))));
  auto most = static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(di, largest)));
  for (; i < n; ++i) most = std::max(most, std::bit_cast<uint32_t>(std::fabs(values[i])));
  return most;
}

}  // namespace
}  // namespace tri::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tri::simd {
HWY_EXPORT(all_finite);
bool all_finite(const float* values, size_t n) noexcept {
  return HWY_DYNAMIC_DISPATCH(all_finite)(values, n);
}

HWY_EXPORT(largest_magnitude);
uint32_t largest_magnitude(const float* values, size_t n) noexcept {
  return HWY_DYNAMIC_DISPATCH(largest_magnitude)(values, n);
}
}  // namespace tri::simd
#endif  // HWY_ONCE
