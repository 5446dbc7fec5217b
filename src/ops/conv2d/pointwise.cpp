#include "ops/conv2d/pointwise.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "base/check.h"
#include "ops/conv2d/panel_weights.h"

namespace tri::ops {
namespace {

using base::ceil_div;

// Gradients of a tile stay in L2 while the panels of weights stream past them; a few tiles to each
// unit keep uneven cores busy. Whole sixes fill the register kernel.
constexpr int64_t kBlockFloats = 48 * 1024;
constexpr int64_t kMostPositions = 96, kSix = 6;
// Results that cannot go straight to their tensor wait for it in so many panels.
constexpr int64_t kResultPanels = 8;
constexpr int64_t kResultWidth = kResultPanels * kPanel;

}  // namespace

bool is_pointwise(const ConvGeometry& g) {
  return g.taps() == 1 && g.stride_h == 1 && g.stride_w == 1 && g.padding_h == 0 &&
         g.padding_w == 0 && g.groups == 1;
}

PointwisePlan::PointwisePlan(const OuterPlan& outer)
    : panels(ceil_div(outer.geometry.in.c, kPanel)),
      block(std::clamp<int64_t>(kBlockFloats / outer.geometry.out.c / kSix * kSix, kSix,
                                kMostPositions)),
      blocks(ceil_div(outer.unit_g, block)) {
  TRI_CHECK(is_pointwise(outer.geometry));
  if (outer.products == Products::kBf16) {
    TRI_CHECK(outer.unit_rows > 0);
    segments = {{0, 0, static_cast<int32_t>(units(outer.products, outer.geometry.out.c))}};
    blocks = ceil_div(2 * outer.unit_g, block);
    return;
  }
  for (int64_t q = 0; q < outer.out_panels; ++q)
    segments.push_back({static_cast<int32_t>(q * outer.gradient_stride()),
                        static_cast<int32_t>(q * kPanel),
                        static_cast<int32_t>(std::min(kPanel, outer.geometry.out.c - q * kPanel))});
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

void PointwiseData::read(const float* chunk, size_t first, size_t count) noexcept {
  const auto blocks = static_cast<size_t>(plan_.blocks);
  pool_.run(count * blocks, [&](size_t index, size_t worker) {
    tile(chunk, index / blocks, outer_.units[first + index / blocks],
         static_cast<int64_t>(index % blocks) * plan_.block, worker);
  });
}

void PointwiseData::read_unit(const float* packed, size_t unit, size_t worker) noexcept {
  for (int64_t i = 0; i < plan_.blocks; ++i)
    tile(packed, 0, outer_.units[unit], i * plan_.block, worker);
}

// Positions [begin, begin + block) of a unit, counted sample by sample.
void PointwiseData::tile(const float* chunk, size_t index, const OuterUnit& unit, int64_t begin,
                         size_t worker) {
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
  const auto place = [&](int64_t sample, int64_t pixel) {
    return ((unit.sample + sample) * dst_.pixels + first_pixel + pixel) * dst_.row_stride;
  };
  const int64_t origin = direct ? place(begin / pixels, begin % pixels) : 0;
  for (int64_t i = begin; i < end; ++i) {
    const int64_t sample = i / pixels, pixel = i % pixels;
    const int64_t to = direct ? place(sample, pixel) - origin : (i - begin) * kResultWidth;
    const int64_t from =
        pairs ? i * units(outer_.products, out.c) : (pixel * unit.samples + sample) * kPanel;
    rows[i - begin] = {static_cast<int32_t>(from), static_cast<int32_t>(to)};
  }
  const RowClass all{0, static_cast<int32_t>(end - begin), 0,
                     static_cast<int32_t>(plan_.segments.size())};
  const float* gradient =
      pairs ? outer_.packed_rows(chunk, index) : outer_.packed_gradient(chunk, index);
  const int64_t panel_units = units(outer_.products, out.c) * kPanel;
  // Calls body(range, first position) for the tile's rows, sample by sample. Whole maps lie one
  // after the other and are one range: a map may be a single pixel.
  const auto for_ranges = [&](int64_t channel, int64_t channels, auto body) {
    for (int64_t i = begin; i < end;) {
      const int64_t some = pixels == dst_.pixels ? end - i : std::min(end - i, pixels - i % pixels);
      body(RowRange{unit.sample + i / pixels, first_pixel + i % pixels, some, channel, channels},
           i - begin);
      i += some;
    }
  };
  const int64_t at_once = pairs ? 2 : 1;
  for (int64_t next, q = 0; q < plan_.panels; q = next) {
    next = std::min(plan_.panels, q + at_once);
    float* to = rounded  ? nullptr
                : direct ? static_cast<float*>(dst_.data) + origin + q * kPanel
                         : results + q % kResultPanels * kPanel;
    const PanelTile some{gradient, turned_ + q * panel_units, nullptr, to,
                         rows,     plan_.segments.data(),     &all,    1};
    if (rounded)
      counts_.add(pair_tile_rounded(some, static_cast<uint16_t*>(dst_.data) + origin + q * kPanel,
                                    std::min((next - q) * kPanel, in.c - q * kPanel),
                                    static_cast<int>(next - q), panel_units));
    else if (pairs)
      pair_tile(some, static_cast<int>(next - q), panel_units);
    else
      panel_tile(some);
    if (direct || (next % kResultPanels != 0 && next < plan_.panels)) continue;
    const int64_t channel = q / kResultPanels * kResultWidth;
    const int64_t channels = std::min(kResultWidth, in.c - channel);
    for_ranges(channel, channels, [&](const RowRange& range, int64_t first) {
      counts_.add(store_rows(dst_, range, results + first * kResultWidth, kResultWidth));
    });
  }
  if (dst_.watcher == nullptr) return;
  for_ranges(0, in.c, [&](const RowRange& range, int64_t) { dst_.tell(range, worker); });
}

}  // namespace tri::ops
