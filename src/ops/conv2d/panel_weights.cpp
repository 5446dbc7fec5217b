#include "ops/conv2d/panel_weights.h"

#include <algorithm>

#include "hwy/cache_control.h"
#include "ops/conv2d/panel_kernel.h"
#include "ops/rows/transform_kernel.h"

namespace tri::ops {

using numeric::Format;

namespace {

// The main part is what the layer sees, in a format that transpose_block() reads.
bool reads_in_place(const Weights& w) {
  const bool whole = w.working == w.format ||
                     (w.working == Format::kF32 && w.remainder_kind == Weights::Remainder::kNone);
  return whole && converts_on_load(w.format);
}

// The blocks that a panel is turned from lie a panel apart, too far for hardware to foresee.
void fetch_block(const std::byte* block, Format format) {
  const size_t bytes = kPanel * kPanel * numeric::storage_bytes(format);
  for (size_t i = 0; i < bytes; i += 64) hwy::Prefetch(block + i);
}

// Weights [begin, begin + count), whole rows, as units.
void load_units(const Weights& weights, int64_t begin, int64_t count, float* to,
                Products products) {
  if (products == Products::kF32) return load_weights(weights, begin, count, to);
  if (weights.format == Format::kBf16 && weights.working == Format::kBf16)
    return pair_rows(static_cast<const uint16_t*>(weights.data) + begin, count / kPanel, to);
  constexpr int64_t kPiece = 64 * kPanel;
  alignas(64) float piece[kPiece];
  for (int64_t i = 0; i < count; i += kPiece) {
    const int64_t some = std::min(kPiece, count - i);
    load_weights(weights, begin + i, some, piece);
    pair_rows(piece, some / kPanel, to + i / 2);
  }
}

}  // namespace

const float* forward_panel(const ConvGeometry& g, const Weights& weights, int64_t group,
                           int64_t panel, const std::vector<bool>* used, float* scratch,
                           Products products) noexcept {
  const int64_t begin = (group * g.panels() + panel) * g.panel_floats();
  if (weights.direct()) return static_cast<const float*>(weights.data) + begin;
  const int64_t each = g.group_in() * kPanel;
  const auto wanted = [used](int64_t tap) {
    return used == nullptr || (*used)[static_cast<size_t>(tap)];
  };
  // Rows of two taps make no pair.
  const bool together = products == Products::kF32 || g.group_in() % 2 == 0;
  const int64_t tap_units = units(products, g.group_in()) * kPanel;
  for (int64_t tap = 0; tap < g.taps(); ++tap) {
    if (!wanted(tap)) continue;
    const int64_t first = tap;
    while (together && tap + 1 < g.taps() && wanted(tap + 1)) ++tap;
    load_units(weights, begin + first * each, (tap + 1 - first) * each, scratch + first * tap_units,
               products);
  }
  return scratch;
}

// Gathered from every forward panel of the group, 16 x 16 numbers at a time.
const float* backward_panel(const ConvGeometry& g, const Weights& weights, int64_t group,
                            int64_t panel, const std::vector<bool>* used, float* scratch,
                            Products products) noexcept {
  const bool in_place = reads_in_place(weights);
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
      const void* from = block;
      Format format = Format::kF32;
      if (in_place && ins == kPanel) {
        constexpr int64_t kAhead = 2;
        format = weights.format;
        const auto bytes = static_cast<int64_t>(numeric::storage_bytes(format));
        const std::byte* const at = static_cast<const std::byte*>(weights.data) + begin * bytes;
        if (out_panel + kAhead < g.panels())
          fetch_block(at + kAhead * g.panel_floats() * bytes, format);
        from = at;
      } else {
        load_weights(weights, begin, ins * kPanel, block);
        std::fill(block + ins * kPanel, block + kPanel * kPanel, 0.0f);
      }
      float* to =
          scratch +
          (flipped * units(products, g.group_out()) + units(products, out_panel * kPanel)) * kPanel;
      if (products == Products::kBf16 && format == Format::kBf16) {
        turn_pairs(static_cast<const uint16_t*>(from), outs, to);
      } else if (products == Products::kBf16) {
        transpose_block(format, from, kPanel, turned, kPanel);
        pair_rows(turned, outs, to);
      } else if (outs == kPanel) {
        transpose_block(format, from, kPanel, to, kPanel);
      } else {
        transpose_block(format, from, kPanel, turned, kPanel);
        std::copy_n(turned, outs * kPanel, to);
      }
    }
  }
  return scratch;
}

}  // namespace tri::ops
