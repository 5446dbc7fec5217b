#include "ops/conv2d/pointwise.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "base/check.h"
#include "ops/conv2d/panel_weights.h"

namespace tri::ops {
namespace {

using base::ceil_div;

// Gradients of a tile stay in L2 while the panels of weights stream past them; a few tiles to each
// unit keep uneven cores busy.
constexpr int64_t kBlockFloats = 48 * 1024;
constexpr int64_t kMostPositions = 96;
// Results that cannot go straight to their tensor wait for it in so many panels.
constexpr int64_t kResultPanels = 8;
constexpr int64_t kResultWidth = kResultPanels * kPanel;

// A multiple of the rows of the register kernel, most often: all are filled.
int64_t block_positions(int64_t channels) {
  const int64_t rows = outer_rows();
  return std::clamp(kBlockFloats / channels / rows * rows, rows, kMostPositions);
}

// Whole groups of kResultPanels, unless there are tiles enough without.
int64_t parts_of(int64_t tiles, int64_t panels) {
  constexpr int64_t kWantedTiles = 16;
  return std::min(ceil_div(panels, kResultPanels), ceil_div(kWantedTiles, tiles));
}

}  // namespace

PointwisePlan::PointwisePlan(const OuterPlan& outer)
    : panels(ceil_div(outer.geometry.in.c, kPanel)),
      block(block_positions(outer.geometry.out.c)),
      blocks(ceil_div(outer.as_rows ? outer.unit_g : 2 * outer.unit_g, block)),
      parts(parts_of(static_cast<int64_t>(outer.chunk_units) * blocks, panels)),
      all{0, 0, static_cast<int32_t>(units(outer.products, outer.geometry.out.c))} {
  TRI_CHECK(outer.geometry.pointwise() && (outer.as_rows || outer.unit_rows > 0));
}

size_t PointwisePlan::shared_bytes(const OuterPlan& outer) const {
  return static_cast<size_t>(panels * units(outer.products, outer.geometry.out.c) * kPanel) *
         sizeof(float);
}

size_t PointwisePlan::worker_bytes() const {
  return static_cast<size_t>(block * kResultWidth) * sizeof(float) +
         static_cast<size_t>(ceil_div(block * int64_t{sizeof(RowRef)}, 64) * 64);
}

PointwiseData::PointwiseData(const OuterPlan& outer, const PointwisePlan& plan,
                             const Weights& weights, const Sink& dst, std::byte* scratch,
                             base::ThreadPool& pool)
    : outer_(outer),
      plan_(plan),
      dst_(dst),
      turned_(reinterpret_cast<float*>(scratch)),
      workers_(scratch + plan.shared_bytes(outer)),
      pool_(pool) {
  pool_.run(static_cast<size_t>(plan_.panels), [&](size_t q, size_t) {
    const auto panel = static_cast<int64_t>(q);
    backward_panel(outer_.geometry, weights, 0, panel, nullptr,
                   turned_ + panel * units(outer_.products, outer_.geometry.out.c) * kPanel,
                   outer_.products);
  });
}

int64_t PointwiseData::first_panel(size_t part) const {
  const int64_t groups = ceil_div(plan_.panels, kResultPanels);
  return std::min(plan_.panels, static_cast<int64_t>(part) * groups / plan_.parts * kResultPanels);
}

void PointwiseData::read(const float* chunk, size_t first, size_t count) noexcept {
  const auto blocks = static_cast<size_t>(plan_.blocks);
  pool_.run(count * blocks * static_cast<size_t>(plan_.parts), [&](size_t index, size_t worker) {
    const size_t part = index / (count * blocks), unit = index / blocks % count;
    tile(chunk, unit, outer_.units[first + unit],
         static_cast<int64_t>(index % blocks) * plan_.block, first_panel(part),
         first_panel(part + 1), worker);
  });
}

void PointwiseData::read_unit(const float* packed, size_t unit, size_t worker) noexcept {
  for (int64_t i = 0; i < plan_.blocks; ++i)
    tile(packed, 0, outer_.units[unit], i * plan_.block, 0, plan_.panels, worker);
}

void PointwiseData::tile(const float* chunk, size_t index, const OuterUnit& unit, int64_t begin,
                         int64_t first, int64_t last, size_t worker) {
  std::byte* memory = workers_ + worker * plan_.worker_bytes();
  const Shape &in = outer_.geometry.in, &out = outer_.geometry.out;
  const int64_t pixels = unit.out_rows * out.w;
  const int64_t end = std::min(unit.samples * pixels, begin + plan_.block);
  if (begin >= end) return;
  auto* results = reinterpret_cast<float*>(memory);
  auto* rows = reinterpret_cast<RowRef*>(results + plan_.block * kResultWidth);
  const bool rounded = takes_rounded(outer_.products, dst_);
  const bool direct = rounded || (dst_.direct() && in.c % kPanel == 0);
  const bool pairs = outer_.products == Products::kBf16;
  const int64_t first_pixel = unit.out_row * out.w;
  const auto place = [&](int64_t i) {
    return ((unit.sample + i / pixels) * dst_.pixels + first_pixel + i % pixels) * dst_.row_stride;
  };
  const int64_t origin = direct ? place(begin) : 0;
  const int64_t step = pairs ? units(outer_.products, out.c) : outer_.gradient_step();
  for (int64_t i = begin; i < end; ++i)
    rows[i - begin] = {
        static_cast<int32_t>(i * step),
        static_cast<int32_t>(direct ? place(i) - origin : (i - begin) * kResultWidth)};
  const RowClass all{0, static_cast<int32_t>(end - begin), 0, 1};
  const float* gradient =
      pairs ? outer_.packed_rows(chunk, index) : outer_.packed_gradient(chunk, index);
  const int64_t panel_units = units(outer_.products, out.c) * kPanel;
  const int64_t at_once =
      PanelGroups{std::min(last - first, kResultPanels), most_panels(outer_.products)}.largest();
  for (int64_t next, q = first; q < last; q = next) {
    next = std::min({last, q + at_once, (q / kResultPanels + 1) * kResultPanels});
    float* to = rounded  ? nullptr
                : direct ? static_cast<float*>(dst_.data) + origin + q * kPanel
                         : results + q % kResultPanels * kPanel;
    const PanelTile some{gradient, turned_ + q * panel_units, nullptr, to, rows, &plan_.all, &all,
                         1};
    if (rounded)
      counts_.add(pair_tile_rounded(some, static_cast<uint16_t*>(dst_.data) + origin + q * kPanel,
                                    std::min((next - q) * kPanel, in.c - q * kPanel), next - q,
                                    panel_units));
    else if (pairs)
      pair_tile(some, next - q, panel_units);
    else
      panel_tile(some, next - q, panel_units);
    if (direct || (next % kResultPanels != 0 && next < last)) continue;
    const int64_t channel = q / kResultPanels * kResultWidth;
    const int64_t channels = std::min(kResultWidth, in.c - channel);
    for_unit_ranges(unit, in, true, begin, end, [&](RowRange range, int64_t i) {
      range.channel = channel;
      range.channels = channels;
      counts_.add(store_rows(dst_, range, results + (i - begin) * kResultWidth, kResultWidth));
    });
  }
  if (dst_.watcher == nullptr) return;
  for_unit_ranges(unit, in, true, begin, end, [&](RowRange range, int64_t) {
    range.channel = first * kPanel;
    range.channels = std::min(in.c, last * kPanel) - range.channel;
    dst_.tell(range, worker);
  });
}

}  // namespace tri::ops
