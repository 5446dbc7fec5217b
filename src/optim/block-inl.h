// Room: optim. The loop shared by all rules, compiled per SIMD target: opens a block of kBlock
// elements as fp32 (in place where it is stored so, decoded to the stack otherwise), lets the rule
// step its lanes, closes the block. A rule is a struct with two static functions over lanes:
//   step(d, c, g, w, m, v)       new w, m, v of a scaled gradient
//   direction(d, c, g, w, m, v)  what measure() takes the norm of
#include <cmath>

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

// The gradient of one block, its largest magnitude as bits (NaN above inf) lane by lane, and how
// many of its scaled values are not finite: those are zero here.
struct Gradient {
  const float* values;
  hn::Vec<hn::RebindToSigned<Lanes32>> largest;
  size_t nonfinite;
  HWY_ALIGN float edge[kBlock];  // a short or cleaned block

  HWY_INLINE Gradient()
      : values(nullptr), largest(hn::Zero(hn::RebindToSigned<Lanes32>())), nonfinite(0) {}

  HWY_INLINE void open(const Task& task, size_t offset, float scale) {
    const size_t n = task.count - offset;
    values = task.grad + offset;
    if (n < kBlock) {
      for (size_t i = 0; i < kBlock; ++i) edge[i] = i < n ? values[i] : 0.0f;
      values = edge;
    }
    nonfinite = 0;
    find_largest();
    const Lanes32 d;
    // |g| * scale is monotonic in |g|: if the largest is finite, so are all.
    const auto scaled = hn::Abs(hn::Mul(hn::BitCast(d, largest), hn::Set(d, scale)));
    const auto inf = hn::BitCast(d, hn::Set(hn::RebindToSigned<Lanes32>(), 0x7f800000));
    if (!hn::AllTrue(d, hn::Lt(scaled, inf))) clean(scale);
  }

 private:
  HWY_INLINE void find_largest() {
    const Lanes32 d;
    const hn::RebindToSigned<Lanes32> di;
    largest = hn::Zero(di);
    for (size_t i = 0; i < kBlock; i += hn::Lanes(d)) {
      largest = hn::Max(largest, hn::BitCast(di, hn::Abs(hn::LoadU(d, values + i))));
    }
  }

  HWY_NOINLINE void clean(float scale) {
    for (size_t i = 0; i < kBlock; ++i) {
      const bool finite = std::isfinite(values[i] * scale);
      nonfinite += finite ? 0 : 1;
      edge[i] = finite ? values[i] : 0.0f;
    }
    values = edge;
    find_largest();
  }
};

template <class StepRule>
GradStats update_blocks(const Task& task) {
  const Lanes32 d;
  // Copies: what a narrow store may alias would be loaded again behind each of them.
  const Coefficients c = task.coefficients;
  const ParamStorage storage = task.storage;
  const NoiseKeys keys(task.noise);
  const auto scale = hn::Set(d, c.grad_scale);
  Scratch scratch;
  Gradient grad;
  Chains chains;
  auto largest = grad.largest;
  GradStats stats;
  for (size_t offset = 0; offset < task.count; offset += kBlock) {
    grad.open(task, offset, c.grad_scale);
    add_block(grad.values, chains.sum, chains.squares);
    largest = hn::Max(largest, grad.largest);
    stats.nonfinite += grad.nonfinite;
    if (grad.nonfinite != 0) continue;

    const size_t at = task.begin + offset;
    float* HWY_RESTRICT weights = open_weights(storage, at, scratch.weights);
    float* HWY_RESTRICT first = open_moment<Moment::kFirst>(storage, at, scratch.first);
    float* HWY_RESTRICT second = open_moment<Moment::kSecond>(storage, at, scratch.second);
    for (size_t i = 0; i < kBlock; i += hn::Lanes(d)) {
      auto w = hn::Load(d, weights + i);
      auto m = hn::Load(d, first + i);
      auto v = hn::Load(d, second + i);
      StepRule::step(d, c, hn::Mul(hn::LoadU(d, grad.values + i), scale), w, m, v);
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
  stats.max_abs = hn::GetLane(hn::MaxOfLanes(d, hn::BitCast(d, largest)));
  return stats;
}

template <class StepRule>
Norms measure_blocks(const Task& task) {
  const Lanes32 d;
  const Coefficients& c = task.coefficients;
  const ParamStorage& storage = task.storage;
  const auto scale = hn::Set(d, c.grad_scale);
  Scratch scratch;
  HWY_ALIGN float direction[kBlock];
  Gradient grad;
  Chains of_weights, of_direction;
  Norms norms;
  for (size_t offset = 0; offset < task.count; offset += kBlock) {
    grad.open(task, offset, c.grad_scale);
    norms.nonfinite += grad.nonfinite;
    if (grad.nonfinite != 0) continue;

    const size_t at = task.begin + offset;
    const float* HWY_RESTRICT weights = open_weights(storage, at, scratch.weights);
    const float* HWY_RESTRICT first = open_moment<Moment::kFirst>(storage, at, scratch.first);
    const float* HWY_RESTRICT second = open_moment<Moment::kSecond>(storage, at, scratch.second);
    for (size_t i = 0; i < kBlock; i += hn::Lanes(d)) {
      const auto g = hn::Mul(hn::LoadU(d, grad.values + i), scale);
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
