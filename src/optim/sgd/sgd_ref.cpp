#include "optim/block_ref.h"

namespace tri::optim {
namespace {

struct SgdRef {
  static void step(const Coefficients& c, float g, float& w, float& m, float&) {
    g = (g + c.l2 * w) * c.trust;
    m = c.beta1 * m + g;
    const float direction = c.nesterov ? g + c.beta1 * m : m;
    w = w * c.keep - c.rate * direction;
  }
  static float direction(const Coefficients&, float g, float, float, float) { return g; }
};

}  // namespace

GradStats sgd_update_ref(const Task& task) noexcept { return update_blocks_ref<SgdRef>(task); }
Norms sgd_measure_ref(const Task& task) noexcept { return measure_blocks_ref<SgdRef>(task); }

}  // namespace tri::optim
