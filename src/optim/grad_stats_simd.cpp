// The statistics that update() gathers, without the update.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/grad_stats_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"         // after foreach_target.h
#include "optim/block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tri::optim::HWY_NAMESPACE {
namespace {

GradStats stats_of(const float* values, size_t count) {
  const Coefficients coefficients;
  const ParamStorage storage;
  const Task task{coefficients, storage, 0, count, values, Noise{}};
  Stats stats;
  const auto lost = [&](const float* some, size_t n, Largest largest)
                        TRI_INLINE { stats.add(some, n, largest); };
  const auto step = [&](size_t, const float* some, size_t n, Largest largest)
                        TRI_INLINE { stats.add(some, n, largest); };
  const size_t nonfinite = for_each_run(task, 1.0f, lost, step);
  return stats.total(nonfinite);
}

}  // namespace
}  // namespace tri::optim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tri::optim {
HWY_EXPORT(stats_of);
GradStats stats_of(const float* grad, size_t count) noexcept {
  return HWY_DYNAMIC_DISPATCH(stats_of)(grad, count);
}
}  // namespace tri::optim
#endif  // HWY_ONCE
