#include "optim/block_ref.h"

namespace tri::optim {
namespace {

struct AdamRef {
  static void step(const Coefficients& c, float g, float& w, float& m, float& v) {
    g = g + c.l2 * w;
    m = c.beta1 * m + c.fresh1 * g;
    v = c.beta2 * v + c.fresh2 * g * g;
    w = w * c.keep - c.rate * m / (std::sqrt(v) * c.root_scale + c.eps);
  }
  static float direction(const Coefficients&, float g, float, float, float) { return g; }
};

}  // namespace

GradStats adam_update_ref(const Task& task) noexcept { return update_blocks_ref<AdamRef>(task); }
Norms adam_measure_ref(const Task& task) noexcept { return measure_blocks_ref<AdamRef>(task); }

}  // namespace tri::optim
