// Room: optim. The loop shared by all rules, compiled per SIMD target: opens a run of blocks of
// kBlock elements as fp32 (in place where they are stored so, decoded to the stack otherwise), lets
// the rule step its lanes, closes the run. A rule is a struct with two static functions over lanes:
//   step(d, c, g, w, m, v, root)  new w, m, v of a scaled gradient, and the root of v
//   direction(d, c, g, w, m, v)   what measure() takes the norm of
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

// For lambdas over lanes.
#ifndef TRI_INLINE
#define TRI_INLINE HWY_ATTR __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace tri::optim::HWY_NAMESPACE {
namespace {
// Where the values of a part that is not stored as fp32 live while the run is open.
struct alignas(64) Scratch {
  float weights[kRun];
  float first[kRun];
  float second[kRun];
  float roots[kRun];
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

// Adds whole blocks to the chains; see kChains.
HWY_INLINE void add_blocks(const float* HWY_RESTRICT x, size_t n, double* HWY_RESTRICT sum,
                           double* HWY_RESTRICT squares) {
  const hn::CappedTag<double, kChains> dd;
  const hn::Rebind<float, decltype(dd)> df;
  constexpr size_t kVectors = kChains / hn::MaxLanes(dd);
  hn::Vec<decltype(dd)> s[kVectors], q[kVectors];
  for (size_t v = 0; v < kVectors; ++v) {
    s[v] = hn::Load(dd, sum + v * hn::Lanes(dd));
    q[v] = hn::Load(dd, squares + v * hn::Lanes(dd));
  }
  for (size_t i = 0; i < n; i += kChains) {
    for (size_t v = 0; v < kVectors; ++v) {
      const auto wide = hn::PromoteTo(dd, hn::LoadU(df, x + i + v * hn::Lanes(dd)));
      s[v] = hn::Add(s[v], wide);
      q[v] = hn::MulAdd(wide, wide, q[v]);  // the product is exact, so fused or not is the same
    }
  }
  for (size_t v = 0; v < kVectors; ++v) {
    hn::Store(s[v], dd, sum + v * hn::Lanes(dd));
    hn::Store(q[v], dd, squares + v * hn::Lanes(dd));
  }
}

using Largest = hn::Vec<hn::RebindToSigned<Lanes32>>;  // magnitudes as bits, NaN above inf

HWY_INLINE Largest largest_of(const float* HWY_RESTRICT x, size_t n) {
  const Lanes32 d;
  const hn::RebindToSigned<Lanes32> di;
  auto largest = hn::Zero(di);
  for (size_t i = 0; i < n; i += hn::Lanes(d))
    largest = hn::Max(largest, hn::BitCast(di, hn::Abs(hn::LoadU(d, x + i))));
  return largest;
}

// |g| * scale is monotonic in |g|: if the largest is finite, so are all.
HWY_INLINE bool finite_times(Largest largest, float scale) {
  const Lanes32 d;
  const auto inf = hn::BitCast(d, hn::Set(hn::RebindToSigned<Lanes32>(), 0x7f800000));
  const auto scaled = hn::Abs(hn::Mul(hn::BitCast(d, largest), hn::Set(d, scale)));
  return hn::AllTrue(d, hn::Lt(scaled, inf));
}

// Zeros take the place of those whose product with `scale` is not finite; how many they were.
inline size_t clean_block(const float* from, float scale, float* to) {
  size_t lost = 0;
  for (size_t i = 0; i < kBlock; ++i) {
    const bool finite = std::isfinite(from[i] * scale);
    lost += finite ? 0 : 1;
    to[i] = finite ? from[i] : 0.0f;
  }
  return lost;
}

// Takes a task's gradient in runs of whole blocks, the last one filled up with zeros. Calls
// seen(values, n, largest) for all of it, zeros for what is not finite once scaled, and
// step(offset, values, n) for blocks without such. Returns how many were not finite.
template <class Seen, class Step>
HWY_INLINE size_t for_each_run(const Task& task, float scale, Seen seen, Step step) {
  HWY_ALIGN float edge[kRun];
  size_t nonfinite = 0;
  for (size_t offset = 0; offset < task.count; offset += kRun) {
    size_t n = HWY_MIN(kRun, task.count - offset);
    const float* values = task.grad + offset;
    if (n % kBlock != 0) {
      for (size_t i = 0; i < kRun; ++i) edge[i] = i < n ? values[i] : 0.0f;
      values = edge;
      n = (n + kBlock - 1) / kBlock * kBlock;
    }
    const Largest largest = largest_of(values, n);
    if (finite_times(largest, scale)) {
      seen(values, n, largest);
      step(offset, values, n);
      continue;
    }
    for (size_t block = 0; block < n; block += kBlock) {
      HWY_ALIGN float clean[kBlock];
      const size_t lost = clean_block(values + block, scale, clean);
      nonfinite += lost;
      seen(clean, kBlock, largest_of(clean, kBlock));
      if (lost == 0) step(offset + block, clean, kBlock);
    }
  }
  return nonfinite;
}

// Statistics on the way.
struct Stats {
  Chains chains;
  Largest largest;

  HWY_INLINE Stats() : largest(hn::Zero(hn::RebindToSigned<Lanes32>())) {}
  HWY_INLINE void add(const float* values, size_t n, Largest of_these) {
    add_blocks(values, n, chains.sum, chains.squares);
    largest = hn::Max(largest, of_these);
  }
  HWY_INLINE GradStats total(size_t nonfinite) const {
    const Lanes32 d;
    return {join(chains.sum), join(chains.squares),
            hn::GetLane(hn::MaxOfLanes(d, hn::BitCast(d, largest))), nonfinite};
  }
};

template <class StepRule>
GradStats update_blocks(const Task& task) {
  // Copies: what a narrow store may alias would be loaded again behind each of them.
  const Coefficients c = task.coefficients;
  const ParamStorage storage = task.storage;
  const NoiseKeys keys(task.noise);
  Scratch scratch;
  Stats stats;
  const auto seen = [&](const float* values, size_t n, Largest largest)
                        TRI_INLINE { stats.add(values, n, largest); };
  const auto step = [&](size_t offset, const float* HWY_RESTRICT values, size_t n) TRI_INLINE {
    const Lanes32 d;
    const auto scale = hn::Set(d, c.grad_scale);
    const size_t at = task.begin + offset;
    float* HWY_RESTRICT weights = open_weights(storage, at, n, scratch.weights);
    float* HWY_RESTRICT first = open_moment<Moment::kFirst>(storage, at, n, scratch.first);
    float* HWY_RESTRICT second = nullptr;
    if (StepRule::kMoments == 2)
      second = open_moment<Moment::kSecond>(storage, at, n, scratch.second);
    for (size_t i = 0; i < n; i += hn::Lanes(d)) {
      auto w = hn::Load(d, weights + i);
      auto m = hn::Load(d, first + i);
      auto v = hn::Zero(d), root = hn::Zero(d);
      if (StepRule::kMoments == 2) v = hn::Load(d, second + i);
      StepRule::step(d, c, hn::Mul(hn::LoadU(d, values + i), scale), w, m, v, root);
      hn::Store(w, d, weights + i);
      hn::Store(m, d, first + i);
      if (StepRule::kMoments == 2) {
        hn::Store(v, d, second + i);
        hn::Store(root, d, scratch.roots + i);
      }
    }
    close_weights(storage, at, n, weights, keys);
    close_moment<Moment::kFirst>(storage, at, n, first, first, keys);
    if (StepRule::kMoments == 2)
      close_moment<Moment::kSecond>(storage, at, n, second, scratch.roots, keys);
  };
  const size_t nonfinite = for_each_run(task, c.grad_scale, seen, step);
  return stats.total(nonfinite);
}

template <class StepRule>
Norms measure_blocks(const Task& task) {
  const Coefficients& c = task.coefficients;
  const ParamStorage& storage = task.storage;
  Scratch scratch;
  HWY_ALIGN float direction[kRun];
  Chains of_weights, of_direction;
  const auto seen = [](const float*, size_t, Largest) TRI_INLINE {};
  const auto step = [&](size_t offset, const float* HWY_RESTRICT values, size_t n) TRI_INLINE {
    const Lanes32 d;
    const auto scale = hn::Set(d, c.grad_scale);
    const size_t at = task.begin + offset;
    const float* HWY_RESTRICT weights = open_weights(storage, at, n, scratch.weights);
    const float* HWY_RESTRICT first = open_moment<Moment::kFirst>(storage, at, n, scratch.first);
    const float* HWY_RESTRICT second = open_moment<Moment::kSecond>(storage, at, n, scratch.second);
    for (size_t i = 0; i < n; i += hn::Lanes(d)) {
      const auto g = hn::Mul(hn::LoadU(d, values + i), scale);
      const auto r = StepRule::direction(d, c, g, hn::Load(d, weights + i), hn::Load(d, first + i),
                                         hn::Load(d, second + i));
      hn::Store(r, d, direction + i);
    }
    add_blocks(weights, n, of_weights.sum, of_weights.squares);
    add_blocks(direction, n, of_direction.sum, of_direction.squares);
  };
  Norms norms;
  norms.nonfinite = for_each_run(task, c.grad_scale, seen, step);
  norms.weight_squares = join(of_weights.squares);
  norms.direction_squares = join(of_direction.squares);
  return norms;
}

}  // namespace
}  // namespace tri::optim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TRI_OPTIM_BLOCK_INL_H_
