#include "train/machine_limits.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "train/fma_burst_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"         // after foreach_target.h

HWY_BEFORE_NAMESPACE();
namespace tri::train::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

double burst(float* sink) {
  // Twelve sums hide the latency of a multiply-add on every x86 to date, and leave registers for
  // its factors.
  constexpr size_t kSums = 12, kRounds = size_t{1} << 14;
  const hn::ScalableTag<float> d;
  const auto factor = hn::Set(d, 0.999f + 0.0f * *sink);
  const auto term = hn::Set(d, 0.001f);
  hn::Vec<decltype(d)> sums[kSums];
  for (size_t i = 0; i < kSums; ++i) sums[i] = hn::Set(d, static_cast<float>(i));
  for (size_t round = 0; round < kRounds; ++round)
    for (auto& sum : sums) sum = hn::MulAdd(sum, factor, term);
  auto all = sums[0];
  for (size_t i = 1; i < kSums; ++i) all = hn::Add(all, sums[i]);
  *sink = hn::GetLane(hn::SumOfLanes(d, all));
  return 2.0 * kSums * kRounds * static_cast<double>(hn::Lanes(d));
}

}  // namespace
}  // namespace tri::train::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tri::train {
HWY_EXPORT(burst);
double fma_burst(float* sink) noexcept { return HWY_DYNAMIC_DISPATCH(burst)(sink); }
}  // namespace tri::train
#endif  // HWY_ONCE
