#include "optim/block_ref.h"

namespace tri::optim {
namespace {

struct LambRef {
  static float advance(const Coefficients& c, float g, float w, float& m, float& v) {
    m = c.beta1 * m + c.fresh1 * g;
    v = c.beta2 * v + c.fresh2 * g * g;
    return c.mean_scale * m / (std::sqrt(v) * c.root_scale + c.eps) + c.decay * w;
  }
  static void step(const Coefficients& c, float g, float& w, float& m, float& v) {
    w = w - c.rate * c.trust * advance(c, g, w, m, v);
  }
  static float direction(const Coefficients& c, float g, float w, float m, float v) {
    return advance(c, g, w, m, v);
  }
};

}  // namespace

GradStats lamb_update_ref(const Task& task) noexcept { return update_blocks_ref<LambRef>(task); }
Norms lamb_measure_ref(const Task& task) noexcept { return measure_blocks_ref<LambRef>(task); }

}  // namespace tri::optim
