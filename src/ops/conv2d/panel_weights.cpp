#include "ops/conv2d/panel_weights.h"

#include <algorithm>

namespace tri::ops {

const float* forward_panel(const ConvGeometry& g, const Weights& weights, int64_t group,
                           int64_t panel, float* scratch) noexcept {
  const int64_t begin = (group * g.panels() + panel) * g.panel_floats();
  if (weights.direct()) return static_cast<const float*>(weights.data) + begin;
  load_weights(weights, begin, g.taps() * g.group_in() * kPanel, scratch);
  return scratch;
}

// Gathered from every forward panel of the group, 16 x 16 numbers at a time.
const float* backward_panel(const ConvGeometry& g, const Weights& weights, int64_t group,
                            int64_t panel, const std::vector<bool>* used, float* scratch) noexcept {
  const int64_t first_in = panel * kPanel;
  const int64_t ins = std::min(kPanel, g.group_in() - first_in);
  alignas(64) float block[kPanel * kPanel], turned[kPanel * kPanel];
  for (int64_t tap = 0; tap < g.taps(); ++tap) {
    const int64_t flipped = g.taps() - 1 - tap;
    if (used != nullptr && !(*used)[static_cast<size_t>(flipped)]) continue;
    for (int64_t out_panel = 0; out_panel < g.panels(); ++out_panel) {
      const int64_t outs = std::min(kPanel, g.group_out() - out_panel * kPanel);
      const int64_t begin = (group * g.panels() + out_panel) * g.panel_floats() +
                            (tap * g.group_in() + first_in) * kPanel;
      const float* from = block;
      if (weights.direct() && ins == kPanel) {
        from = static_cast<const float*>(weights.data) + begin;
      } else {
        load_weights(weights, begin, ins * kPanel, block);
        std::fill(block + ins * kPanel, block + kPanel * kPanel, 0.0f);
      }
      float* to = scratch + (flipped * g.group_out() + out_panel * kPanel) * kPanel;
      if (outs == kPanel) {
        transpose_block(from, kPanel, to, kPanel);
      } else {
        transpose_block(from, kPanel, turned, kPanel);
        std::copy_n(turned, outs * kPanel, to);
      }
    }
  }
  return scratch;
}

}  // namespace tri::ops
