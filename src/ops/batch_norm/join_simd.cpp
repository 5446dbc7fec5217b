// ops/batch_norm/join_simd.cpp; contract in norm_kernel.h. Never throws, allocates or logs.
#include "ops/batch_norm/norm_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/batch_norm/join_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"         // after foreach_target.h

HWY_BEFORE_NAMESPACE();
namespace tri::ops::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Channels in lanes of double, the last ones alone. Products and sums are rounded apart, so that
// targets without FMA agree.
template <class Body>
HWY_INLINE void for_doubles(int64_t channels, Body body) {
  const hn::ScalableTag<double> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + lanes <= channels; c += lanes) body(d, c);
  for (; c < channels; ++c) body(hn::CappedTag<double, 1>(), c);
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float* from) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<float, D>(), from));
}
template <class D>
HWY_INLINE void store(D, hn::Vec<D> v, float* to) {
  const hn::Rebind<float, D> df;
  hn::StoreU(hn::DemoteTo(df, v), df, to);
}

// PyTorch's: r += momentum * (batch - r), of the unbiased variance. A step that overflowed is lost,
// whoever finds it later; the statistics outlive it.
template <class D>
HWY_INLINE void update_running(D d, const NormRunning& r, int64_t c, double rows, hn::Vec<D> mean,
                               hn::Vec<D> m2) {
  const auto finite = hn::And(hn::IsFinite(mean), hn::IsFinite(m2));
  const auto unbiased = rows > 1 ? hn::Div(m2, hn::Set(d, rows - 1)) : hn::Zero(d);
  const auto fresh = hn::Set(d, double{r.momentum}), kept = hn::Set(d, 1 - double{r.momentum});
  const auto step = [&](float* at, hn::Vec<D> batch) HWY_ATTR {
    const auto before = load(d, at);
    store(d, hn::IfThenElse(finite, hn::Add(hn::Mul(kept, before), hn::Mul(fresh, batch)), before),
          at);
  };
  step(r.mean + c, mean);
  step(r.variance + c, unbiased);
}

void join_moments(const JoinedTiles& t, const NormParams& p, const NormBatch& batch,
                  const NormRunning& running) {
  for_doubles(t.channels, [&](auto d, int64_t c) HWY_ATTR {
    auto mean = hn::Zero(d), m2 = hn::Zero(d);
    const float* sums = t.sums + c;
    for (int64_t row = 0; row < t.rows; row += t.tile_rows, sums += 2 * t.stride) {
      const auto count = static_cast<double>(HWY_MIN(t.tile_rows, t.rows - row));
      const double share = count / (static_cast<double>(row) + count);
      const auto off = hn::Sub(load(d, sums), mean);
      const auto between = hn::Mul(hn::Mul(off, off), hn::Set(d, static_cast<double>(row) * share));
      m2 = hn::Add(m2, hn::Add(load(d, sums + t.stride), between));
      mean = hn::Add(mean, hn::Mul(off, hn::Set(d, share)));
    }
    const auto rows = static_cast<double>(t.rows);
    const auto variance = hn::Add(hn::Div(m2, hn::Set(d, rows)), hn::Set(d, double{p.eps}));
    const auto inverse = hn::Div(hn::Set(d, 1.0), hn::Sqrt(variance));
    const auto scale = hn::Mul(load(d, p.gamma + c), inverse);
    store(d, mean, batch.mean + c);
    store(d, inverse, batch.inverse + c);
    store(d, scale, batch.scale + c);
    store(d, hn::Sub(load(d, p.beta + c), hn::Mul(mean, scale)), batch.shift + c);
    if (running.mean != nullptr) update_running(d, running, c, rows, mean, m2);
  });
}

// From the sums of dz and of dz * (y - mean) over `rows`.
template <class D>
HWY_INLINE void finish_grads(D d, int64_t c, double rows, hn::Vec<D> plain, hn::Vec<D> centred,
                             const NormParams& p, const NormBatch& batch, const NormGrads& grads) {
  const auto inverse = load(d, batch.inverse + c);
  const auto a = hn::Mul(load(d, p.gamma + c), inverse);
  const auto negative = hn::Neg(a), all = hn::Set(d, rows);
  store(d, a, grads.a + c);
  store(d, hn::Div(hn::Mul(hn::Mul(hn::Mul(negative, inverse), inverse), centred), all),
        grads.b + c);
  store(d, hn::Div(hn::Mul(negative, plain), all), grads.c + c);
  // One rounding per ghost batch, so that micro-batches give the bits of the whole batch.
  store(d, hn::Add(load(d, grads.gamma + c), hn::Mul(centred, inverse)), grads.gamma + c);
  store(d, hn::Add(load(d, grads.beta + c), plain), grads.beta + c);
}

void join_grads(const JoinedTiles& t, const NormParams& p, const NormBatch& batch,
                const NormGrads& grads) {
  for_doubles(t.channels, [&](auto d, int64_t c) HWY_ATTR {
    auto plain = hn::Zero(d), centred = hn::Zero(d);
    const float* sums = t.sums + c;
    for (int64_t row = 0; row < t.rows; row += t.tile_rows, sums += 2 * t.stride) {
      plain = hn::Add(plain, load(d, sums));
      centred = hn::Add(centred, load(d, sums + t.stride));
    }
    finish_grads(d, c, static_cast<double>(t.rows), plain, centred, p, batch, grads);
  });
}

void join_factored_grads(const FactoredSums& s, int64_t samples, int64_t stride, int64_t rows,
                         int64_t channels, const NormParams& p, const NormBatch& batch,
                         const NormGrads& grads) {
  for_doubles(channels, [&](auto d, int64_t c) HWY_ATTR {
    auto plain = hn::Zero(d), centred = hn::Zero(d);
    for (int64_t n = 0; n < samples; ++n) {
      const float* sums = s.sums + n * kFactoredSums * stride + c;
      const auto factor = load(d, s.factor + n * stride + c);
      const auto addend = load(d, s.addend + n * stride + c);
      plain = hn::Add(plain, hn::Add(hn::Mul(factor, load(d, sums)),
                                     hn::Mul(addend, load(d, sums + 2 * stride))));
      centred = hn::Add(centred, hn::Add(hn::Mul(factor, load(d, sums + stride)),
                                         hn::Mul(addend, load(d, sums + 3 * stride))));
    }
    finish_grads(d, c, static_cast<double>(rows), plain, centred, p, batch, grads);
  });
}

}  // namespace
}  // namespace tri::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tri::ops {
HWY_EXPORT(join_moments);
HWY_EXPORT(join_grads);
HWY_EXPORT(join_factored_grads);

void join_moments(const JoinedTiles& tiles, const NormParams& params, const NormBatch& batch,
                  const NormRunning& running) noexcept {
  HWY_DYNAMIC_DISPATCH(join_moments)(tiles, params, batch, running);
}
void join_grads(const JoinedTiles& tiles, const NormParams& params, const NormBatch& batch,
                const NormGrads& grads) noexcept {
  HWY_DYNAMIC_DISPATCH(join_grads)(tiles, params, batch, grads);
}
void join_factored_grads(const FactoredSums& sums, int64_t samples, int64_t stride, int64_t rows,
                         int64_t channels, const NormParams& params, const NormBatch& batch,
                         const NormGrads& grads) noexcept {
  HWY_DYNAMIC_DISPATCH(join_factored_grads)
  (sums, samples, stride, rows, channels, params, batch, grads);
}
}  // namespace tri::ops
#endif  // HWY_ONCE
