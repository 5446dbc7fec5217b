// Room: optim. The loop shared by all rules, compiled per SIMD target: opens a block of kBlock
// elements as fp32 (in place where it is stored so, decoded to the stack otherwise), lets the rule
// step its lanes, closes the block. A rule is a struct with two static functions over lanes:
//   step(d, c, g, w, m, v)       new w, m, v of a scaled gradient
//   direction(d, c, g, w, m, v)  what measure() takes the norm of
#include "hwy/highway.h"
#include "optim/forms-inl.h"
#include "optim/kernel.h"

#if defined(TRI_OPTIM_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRI_OPTIM_BLOCK_INL_H_
#undef TRI_OPTIM_BLOCK_INL_H_
#else
#define TRI_OPTIM_BLOCK_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace tri::optim::HWY_NAMESPACE {
namespace {
// Where the values of a part that is not stored as fp32 live while the block is open.
struct alignas(64) Scratch {
  float weights[kBlock];
  float first[kBlock];
  float second[kBlock];
  float grad[kBlock];
};

struct alignas(64) Chains {
  double sum[kChains] = {};
  double squares[kChains] = {};
};

inline double join(const double (&chains)[kChains]) {
  double total = 0;
  for (const double chain : chains) total += chain;
  return total;
}

// Adds a block to the chains; see kChains.
HWY_INLINE void add_block(const float* HWY_RESTRICT x, double* HWY_RESTRICT sum,
                          double* HWY_RESTRICT squares) {
  const hn::CappedTag<double, kChains> dd;
  const hn::Rebind<float, decltype(dd)> df;
  for (size_t chain = 0; chain < kChains; chain += hn::Lanes(dd)) {
    auto s = hn::Load(dd, sum + chain);
    auto q = hn::Load(dd, squares + chain);
    for (size_t i = chain; i < kBlock; i += kChains) {
      const auto wide = hn::PromoteTo(dd, hn::LoadU(df, x + i));
      s = hn::Add(s, wide);
      q = hn::Add(q, hn::Mul(wide, wide));
    }
    hn::Store(s, dd, sum + chain);
    hn::Store(q, dd, squares + chain);
  }
}

// The gradient of a whole block; a short one is padded with zeros.
HWY_INLINE const float* open_grad(const Task& task, size_t offset, Scratch& scratch) {
  const size_t n = task.count - offset;
  if (n >= kBlock) return task.grad + offset;
  for (size_t i = 0; i < kBlock; ++i) scratch.grad[i] = i < n ? task.grad[offset + i] : 0.0f;
  return scratch.grad;
}

// Number of elements whose scaled gradient is not finite.
HWY_INLINE size_t count_nonfinite(const float* HWY_RESTRICT grad, float grad_scale) {
  const Lanes32 d;
  const auto scale = hn::Set(d, grad_scale);
  size_t finite = 0;
  for (size_t i = 0; i < kBlock; i += hn::Lanes(d)) {
    finite += hn::CountTrue(d, hn::IsFinite(hn::Mul(hn::LoadU(d, grad + i), scale)));
  }
  return kBlock - finite;
}

// The gradient with its non-finite elements as zeros, for the statistics of a skipped block.
HWY_INLINE const float* without_nonfinite(const float* grad, float grad_scale, Scratch& scratch) {
  const Lanes32 d;
  for (size_t i = 0; i < kBlock; i += hn::Lanes(d)) {
    const auto g = hn::LoadU(d, grad + i);
    const auto finite = hn::IsFinite(hn::Mul(g, hn::Set(d, grad_scale)));
    hn::Store(hn::IfThenElseZero(finite, g), d, scratch.grad + i);
  }
  return scratch.grad;
}

template <class StepRule>
GradStats update_blocks(const Task& task) {
  const Lanes32 d;
  const Coefficients& c = task.coefficients;
  const ParamStorage& storage = task.storage;
  const auto scale = hn::Set(d, c.grad_scale);
  const NoiseKeys keys(task.noise);
  Scratch scratch;
  Chains chains;
  auto max_abs = hn::Zero(d);
  GradStats stats;
  for (size_t offset = 0; offset < task.count; offset += kBlock) {
    const size_t at = task.begin + offset;
    const float* HWY_RESTRICT grad = open_grad(task, offset, scratch);
    const size_t nonfinite = count_nonfinite(grad, c.grad_scale);
    if (nonfinite != 0) grad = without_nonfinite(grad, c.grad_scale, scratch);
    add_block(grad, chains.sum, chains.squares);
    for (size_t i = 0; i < kBlock; i += hn::Lanes(d)) {
      max_abs = hn::Max(max_abs, hn::Abs(hn::LoadU(d, grad + i)));
    }
    stats.nonfinite += nonfinite;
    if (nonfinite != 0) continue;

    float* HWY_RESTRICT weights = open_weights(storage, at, scratch.weights);
    float* HWY_RESTRICT first = open_moment<Moment::kFirst>(storage, at, scratch.first);
    float* HWY_RESTRICT second = open_moment<Moment::kSecond>(storage, at, scratch.second);
    for (size_t i = 0; i < kBlock; i += hn::Lanes(d)) {
      auto w = hn::Load(d, weights + i);
      auto m = hn::Load(d, first + i);
      auto v = hn::Load(d, second + i);
      StepRule::step(d, c, hn::Mul(hn::LoadU(d, grad + i), scale), w, m, v);
      hn::Store(w, d, weights + i);
      hn::Store(m, d, first + i);
      if (StepRule::kMoments == 2) hn::Store(v, d, second + i);
    }
    close_weights(storage, at, weights, keys);
    close_moment<Moment::kFirst>(storage, at, first, keys);
    if (StepRule::kMoments == 2) close_moment<Moment::kSecond>(storage, at, second, keys);
  }
  stats.sum = join(chains.sum);
  stats.sum_squares = join(chains.squares);
  stats.max_abs = hn::GetLane(hn::MaxOfLanes(d, max_abs));
  return stats;
}

template <class StepRule>
Norms measure_blocks(const Task& task) {
  const Lanes32 d;
  const Coefficients& c = task.coefficients;
  const ParamStorage& storage = task.storage;
  const auto scale = hn::Set(d, c.grad_scale);
  Scratch scratch;
  alignas(64) float direction[kBlock];
  Chains of_weights, of_direction;
  Norms norms;
  for (size_t offset = 0; offset < task.count; offset += kBlock) {
    const size_t at = task.begin + offset;
    const float* HWY_RESTRICT grad = open_grad(task, offset, scratch);
    const size_t nonfinite = count_nonfinite(grad, c.grad_scale);
    norms.nonfinite += nonfinite;
    if (nonfinite != 0) continue;

    const float* HWY_RESTRICT weights = open_weights(storage, at, scratch.weights);
    const float* HWY_RESTRICT first = open_moment<Moment::kFirst>(storage, at, scratch.first);
    const float* HWY_RESTRICT second = open_moment<Moment::kSecond>(storage, at, scratch.second);
    for (size_t i = 0; i < kBlock; i += hn::Lanes(d)) {
      const auto g = hn::Mul(hn::LoadU(d, grad + i), scale);
      const auto r = StepRule::direction(d, c, g, hn::Load(d, weights + i), hn::Load(d, first + i),
                                         hn::Load(d, second + i));
      hn::Store(r, d, direction + i);
    }
    add_block(weights, of_weights.sum, of_weights.squares);
    add_block(direction, of_direction.sum, of_direction.squares);
  }
  norms.weight_squares = join(of_weights.squares);
  norms.direction_squares = join(of_direction.squares);
  return norms;
}

}  // namespace
}  // namespace tri::optim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TRI_OPTIM_BLOCK_INL_H_
