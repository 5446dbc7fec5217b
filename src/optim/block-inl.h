// Room: optim. The loop shared by all rules, compiled per SIMD target: opens a run of blocks of
// kBlock elements as fp32 (in place where they are stored so, decoded to the stack otherwise), lets
// the rule step its lanes, closes the run. A rule is a struct with two static functions over lanes:
//   step(d, c, g, w, m, v, root)  new w, m, v of a scaled gradient, and the root of v
//   direction(d, c, g, w, m, v)   what measure() takes the norm of
#include <cmath>

#include "hwy/cache_control.h"
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

// Chains in registers; see kChains.
class RunningChains {
  using Wide = hn::CappedTag<double, kChains>;
  static constexpr size_t kVectors = kChains / hn::MaxLanes(Wide());

 public:
  HWY_INLINE explicit RunningChains(const Chains& from) {
    const Wide d;
    for (size_t v = 0; v < kVectors; ++v) {
      sum_[v] = hn::Load(d, from.sum + v * hn::Lanes(d));
      squares_[v] = hn::Load(d, from.squares + v * hn::Lanes(d));
    }
  }
  // The next kChains numbers.
  HWY_INLINE void add(const float* HWY_RESTRICT x) {
    const Wide d;
    const hn::Rebind<float, Wide> df;
    for (size_t v = 0; v < kVectors; ++v) {
      const auto wide = hn::PromoteTo(d, hn::LoadU(df, x + v * hn::Lanes(d)));
      sum_[v] = hn::Add(sum_[v], wide);
      // The product is exact, so fused or not is the same.
      squares_[v] = hn::MulAdd(wide, wide, squares_[v]);
    }
  }
  HWY_INLINE void store(Chains& to) const {
    const Wide d;
    for (size_t v = 0; v < kVectors; ++v) {
      hn::Store(sum_[v], d, to.sum + v * hn::Lanes(d));
      hn::Store(squares_[v], d, to.squares + v * hn::Lanes(d));
    }
  }

 private:
  hn::Vec<Wide> sum_[kVectors], squares_[kVectors];
};

// Adds whole blocks.
HWY_INLINE void add_blocks(const float* HWY_RESTRICT x, size_t n, Chains& chains) {
  RunningChains running(chains);
  for (size_t i = 0; i < n; i += kChains) running.add(x + i);
  running.store(chains);
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
// step(offset, values, n, largest) for those that are finite once scaled, and for the others
// lost(values, n, largest), with zeros for what is not. Returns how many numbers were not.
template <class Lost, class Step>
HWY_INLINE size_t for_each_run(const Task& task, float scale, Lost lost, Step step) {
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
      step(offset, values, n, largest);
      continue;
    }
    for (size_t block = 0; block < n; block += kBlock) {
      HWY_ALIGN float clean[kBlock];
      const size_t cleaned = clean_block(values + block, scale, clean);
      nonfinite += cleaned;
      const Largest left = largest_of(clean, kBlock);
      if (cleaned == 0)
        step(offset + block, clean, kBlock, left);
      else
        lost(clean, kBlock, left);
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
    add_blocks(values, n, chains);
    largest = hn::Max(largest, of_these);
  }
  HWY_INLINE GradStats total(size_t nonfinite) const {
    const Lanes32 d;
    return {join(chains.sum), join(chains.squares),
            hn::GetLane(hn::MaxOfLanes(d, hn::BitCast(d, largest))), nonfinite};
  }
};

// Steps a run of opened weights and its moments, and sums the gradient unless it is zero, as that
// of taps that meet padding only (eight of nine on maps of one pixel). All in one loop: what
// decodes a moment waits for a division, a sum for the one before it.
template <class StepRule, StateForm F, bool kSums>
HWY_INLINE void step_run(const Coefficients& c, const ParamStorage& storage, size_t at, size_t n,
                         const float* HWY_RESTRICT values, float* HWY_RESTRICT weights,
                         Chains& sums, Scratch& scratch, const NoiseKeys& keys) {
  const Lanes32 d;
  const auto scale = hn::Set(d, c.grad_scale);
  float* HWY_RESTRICT first = moment_run<F, Moment::kFirst>(storage, at, scratch.first);
  float* HWY_RESTRICT second = moment_run<F, Moment::kSecond>(storage, at, scratch.second);
  RunningChains chains(sums);
  for (size_t block = 0; block < n; block += kBlock) {
    const auto first_scale = moment_scale<F, Moment::kFirst>(d, storage, at + block);
    auto second_scale = hn::Zero(d);
    if (StepRule::kMoments == 2)
      second_scale = moment_scale<F, Moment::kSecond>(d, storage, at + block);
    for (size_t i = block; i < block + kBlock; i += hn::Lanes(d)) {
      for (size_t k = i; kSums && k < i + hn::Lanes(d); k += kChains)
        if (k % kChains == 0) chains.add(values + k);
      auto w = hn::Load(d, weights + i);
      auto m = load_moment<F, Moment::kFirst>(d, storage, at + i, first_scale);
      auto v = hn::Zero(d), root = hn::Zero(d);
      if (StepRule::kMoments == 2)
        v = load_moment<F, Moment::kSecond>(d, storage, at + i, second_scale);
      StepRule::step(d, c, hn::Mul(hn::LoadU(d, values + i), scale), w, m, v, root);
      hn::Store(w, d, weights + i);
      hn::Store(m, d, first + i);
      if (StepRule::kMoments == 2) {
        hn::Store(v, d, second + i);
        hn::Store(root, d, scratch.roots + i);
      }
    }
  }
  chains.store(sums);
  close_moment<F, Moment::kFirst>(storage, at, n, first, first, keys);
  if (StepRule::kMoments == 2)
    close_moment<F, Moment::kSecond>(storage, at, n, second, scratch.roots, keys);
}

// Asks for what is read of the run at `at`. What the processor itself asks for ends with a page,
// and fused updates take a page or two of each part at a time.
HWY_INLINE void ask_for_run(const ParamStorage& storage, const ElementBytes& bytes, size_t at) {
  const auto ask = [at](const std::byte* part, size_t each) TRI_INLINE {
    if (part == nullptr) return;
    for (size_t i = 0; i < kRun * each; i += 64) {
      hwy::Prefetch(part + at * each + i);
      asm volatile("");  // gcc removes a loop that does nothing else
    }
  };
  ask(storage.main, bytes.main);
  ask(storage.remainder, bytes.remainder);
  ask(storage.first, bytes.moment);
  ask(storage.second, bytes.moment);
}

template <class StepRule>
GradStats update_blocks(const Task& task) {
  // Copies: what a narrow store may alias would be loaded again behind each of them.
  const Coefficients c = task.coefficients;
  const ParamStorage storage = task.storage;
  const NoiseKeys keys(task.noise);
  const ElementBytes bytes = element_bytes(storage.weight_form, storage.state_form);
  constexpr size_t kAhead = 2 * kRun;
  const hn::RebindToSigned<Lanes32> largest_tag;
  Scratch scratch;
  Stats stats;
  const auto lost = [&](const float* values, size_t n, Largest largest)
                        TRI_INLINE { stats.add(values, n, largest); };
  const auto step = [&](size_t offset, const float* HWY_RESTRICT values, size_t n,
                        Largest largest) TRI_INLINE {
    const size_t at = task.begin + offset;
    ask_for_run(storage, bytes, at + kAhead);
    float* HWY_RESTRICT weights = open_weights(storage, at, n, scratch.weights);
    const bool zeros = hn::AllFalse(largest_tag, hn::Gt(largest, hn::Zero(largest_tag)));
    by_form(storage.state_form, [&](auto form) TRI_INLINE {
      const auto run = [&](auto sums) TRI_INLINE {
        step_run<StepRule, form.value, sums.value>(c, storage, at, n, values, weights, stats.chains,
                                                   scratch, keys);
      };
      zeros ? run(std::false_type()) : run(std::true_type());
    });
    close_weights(storage, at, n, weights, keys);
    stats.largest = hn::Max(stats.largest, largest);
  };
  const size_t nonfinite = for_each_run(task, c.grad_scale, lost, step);
  return stats.total(nonfinite);
}

template <class StepRule>
Norms measure_blocks(const Task& task) {
  const Coefficients& c = task.coefficients;
  const ParamStorage& storage = task.storage;
  Scratch scratch;
  HWY_ALIGN float direction[kRun];
  Chains of_weights, of_direction;
  const auto lost = [](const float*, size_t, Largest) TRI_INLINE {};
  const auto step = [&](size_t offset, const float* HWY_RESTRICT values, size_t n,
                        Largest) TRI_INLINE {
    const Lanes32 d;
    const auto scale = hn::Set(d, c.grad_scale);
    const size_t at = task.begin + offset;
    const float* HWY_RESTRICT weights = open_weights(storage, at, n, scratch.weights);
    by_form(storage.state_form, [&](auto form) TRI_INLINE {
      for (size_t block = 0; block < n; block += kBlock) {
        const auto first = moment_scale<form.value, Moment::kFirst>(d, storage, at + block);
        const auto second = moment_scale<form.value, Moment::kSecond>(d, storage, at + block);
        for (size_t i = block; i < block + kBlock; i += hn::Lanes(d)) {
          const auto r = StepRule::direction(
              d, c, hn::Mul(hn::LoadU(d, values + i), scale), hn::Load(d, weights + i),
              load_moment<form.value, Moment::kFirst>(d, storage, at + i, first),
              load_moment<form.value, Moment::kSecond>(d, storage, at + i, second));
          hn::Store(r, d, direction + i);
        }
      }
    });
    add_blocks(weights, n, of_weights);
    add_blocks(direction, n, of_direction);
  };
  Norms norms;
  norms.nonfinite = for_each_run(task, c.grad_scale, lost, step);
  norms.weight_squares = join(of_weights.squares);
  norms.direction_squares = join(of_direction.squares);
  return norms;
}

}  // namespace
}  // namespace tri::optim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TRI_OPTIM_BLOCK_INL_H_
