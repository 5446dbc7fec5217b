// Adam and AdamW, as PyTorch computes them: eps is added to the corrected root.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optim/adam/adam_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"         // after foreach_target.h
#include "optim/block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tri::optim::HWY_NAMESPACE {
namespace {

struct Adam {
  static constexpr size_t kMoments = 2;

  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE void step(D d, const Coefficients& c, V g, V& w, V& m, V& v, V& root) {
    g = hn::Add(g, hn::Mul(hn::Set(d, c.l2), w));
    m = hn::Add(hn::Mul(hn::Set(d, c.beta1), m), hn::Mul(hn::Set(d, c.fresh1), g));
    v = hn::Add(hn::Mul(hn::Set(d, c.beta2), v), hn::Mul(hn::Mul(hn::Set(d, c.fresh2), g), g));
    root = hn::Sqrt(v);
    const auto divisor = hn::Add(hn::Mul(root, hn::Set(d, c.root_scale)), hn::Set(d, c.eps));
    w = hn::Sub(hn::Mul(w, hn::Set(d, c.keep)), hn::Div(hn::Mul(hn::Set(d, c.rate), m), divisor));
  }

  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V direction(D, const Coefficients&, V g, V, V, V) {
    return g;
  }
};

GradStats update_adam(const Task& task) { return update_blocks<Adam>(task); }
Norms measure_adam(const Task& task) { return measure_blocks<Adam>(task); }

}  // namespace
}  // namespace tri::optim::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tri::optim {
HWY_EXPORT(update_adam);
HWY_EXPORT(measure_adam);
GradStats adam_update(const Task& task) noexcept { return HWY_DYNAMIC_DISPATCH(update_adam)(task); }
Norms adam_measure(const Task& task) noexcept { return HWY_DYNAMIC_DISPATCH(measure_adam)(task); }
}  // namespace tri::optim
#endif  // HWY_ONCE
