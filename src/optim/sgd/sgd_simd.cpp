// SGD with momentum and Nesterov's look-ahead; with a trust below or above 1 it is LARS.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/sgd/sgd_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"         // after foreach_target.h
#include "optim/block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tri::optim::HWY_NAMESPACE {
namespace {

struct Sgd {
  static constexpr size_t kMoments = 1;

  // Mul and Add apart, never fused: targets without FMA must agree.
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE void step(D d, const Coefficients& c, V g, V& w, V& m, V&, V&) {
    const auto mu = hn::Set(d, c.beta1);
    g = hn::Add(g, hn::Mul(hn::Set(d, c.l2), w));
    g = hn::Mul(g, hn::Set(d, c.trust));
    m = hn::Add(hn::Mul(mu, m), g);
    const auto direction = c.nesterov ? hn::Add(g, hn::Mul(mu, m)) : m;
    w = hn::Sub(hn::Mul(w, hn::Set(d, c.keep)), hn::Mul(hn::Set(d, c.rate), direction));
  }

  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V direction(D, const Coefficients&, V g, V, V, V) {
    return g;
  }
};

GradStats update_sgd(const Task& task) { return update_blocks<Sgd>(task); }
Norms measure_sgd(const Task& task) { return measure_blocks<Sgd>(task); }

}  // namespace
}  // namespace tri::optim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tri::optim {
HWY_EXPORT(update_sgd);
HWY_EXPORT(measure_sgd);
GradStats sgd_update(const Task& task) noexcept { return HWY_DYNAMIC_DISPATCH(update_sgd)(task); }
Norms sgd_measure(const Task& task) noexcept { return HWY_DYNAMIC_DISPATCH(measure_sgd)(task); }
}  // namespace tri::optim
#endif  // HWY_ONCE
