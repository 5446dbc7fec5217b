// LAMB: w -= lr * trust * r, r = corrected m / (corrected root of v + eps) + decay * w.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/lamb/lamb_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"         // after foreach_target.h
#include "optim/block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tri::optim::HWY_NAMESPACE {
namespace {

struct Lamb {
  static constexpr size_t kMoments = 2;

  // New moments, and r of the old weight.
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V advance(D d, const Coefficients& c, V g, V w, V& m, V& v, V& root) {
    m = hn::Add(hn::Mul(hn::Set(d, c.beta1), m), hn::Mul(hn::Set(d, c.fresh1), g));
    v = hn::Add(hn::Mul(hn::Set(d, c.beta2), v), hn::Mul(hn::Mul(hn::Set(d, c.fresh2), g), g));
    root = hn::Sqrt(v);
    const auto divisor = hn::Add(hn::Mul(root, hn::Set(d, c.root_scale)), hn::Set(d, c.eps));
    const auto adam = hn::Div(hn::Mul(hn::Set(d, c.mean_scale), m), divisor);
    return hn::Add(adam, hn::Mul(hn::Set(d, c.decay), w));
  }

  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE void step(D d, const Coefficients& c, V g, V& w, V& m, V& v, V& root) {
    const auto r = advance(d, c, g, w, m, v, root);
    w = hn::Sub(w, hn::Mul(hn::Set(d, c.rate * c.trust), r));
  }

  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V direction(D d, const Coefficients& c, V g, V w, V m, V v) {
    V root;
    return advance(d, c, g, w, m, v, root);
  }
};

GradStats update_lamb(const Task& task) { return update_blocks<Lamb>(task); }
Norms measure_lamb(const Task& task) { return measure_blocks<Lamb>(task); }

}  // namespace
}  // namespace tri::optim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tri::optim {
HWY_EXPORT(update_lamb);
HWY_EXPORT(measure_lamb);
GradStats lamb_update(const Task& task) noexcept { return HWY_DYNAMIC_DISPATCH(update_lamb)(task); }
Norms lamb_measure(const Task& task) noexcept { return HWY_DYNAMIC_DISPATCH(measure_lamb)(task); }
}  // namespace tri::optim
#endif  // HWY_ONCE
