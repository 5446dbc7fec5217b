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
  const Lanes32 d;
  const Coefficients coefficients;
  const ParamStorage storage;
  const Task task{coefficients, storage, 0, count, values, Noise{}};
  Gradient grad;
  Chains chains;
  auto largest = grad.largest;
  GradStats stats;
  for (size_t offset = 0; offset < count; offset += kBlock) {
    grad.open(task, offset, 1.0f);
    add_block(grad.values, chains.sum, chains.squares);
    largest = hn::Max(largest, grad.largest);
    stats.nonfinite += grad.nonfinite;
  }
  stats.sum = join(chains.sum);
  stats.sum_squares = join(chains.squares);
  stats.max_abs = hn::GetLane(hn::MaxOfLanes(d, hn::BitCast(d, largest)));
  return stats;
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
