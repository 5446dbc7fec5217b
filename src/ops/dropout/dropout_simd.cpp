// ops/dropout/dropout_simd.cpp; contract in dropout_kernel.h. Never throws, allocates or logs.
#include "ops/dropout/dropout_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/dropout/dropout_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"         // after foreach_target.h
#include "ops/window/channels-inl.h"
#include "simd/random-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tri::ops::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

void drop(const DropoutRun& run) {
  const DropoutRun r = run;
  for_channels(r.count, [=](auto d, int64_t i) TRI_LANES {
    const hn::RebindToUnsigned<decltype(d)> du;
    const hn::RebindToSigned<decltype(d)> di;
    const auto random = hn::ShiftRight<8>(
        simd::HWY_NAMESPACE::noise(du, r.key, r.first + static_cast<uint32_t>(i)));
    // Of 24 bits, so that signed lanes can be compared.
    const auto dropped =
        hn::Lt(hn::BitCast(di, random), hn::Set(di, static_cast<int32_t>(r.threshold)));
    const auto grown = hn::Mul(hn::LoadU(d, r.values + i), hn::Set(d, r.grown));
    hn::StoreU(hn::IfThenZeroElse(hn::RebindMask(d, dropped), grown), d, r.values + i);
  });
}

}  // namespace
}  // namespace tri::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tri::ops {
HWY_EXPORT(drop);
void drop(const DropoutRun& run) noexcept { HWY_DYNAMIC_DISPATCH(drop)(run); }
}  // namespace tri::ops
#endif  // HWY_ONCE
