#include "ops/conv2d/gather_plan.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "ops/rows/scratch_floats.h"

namespace tri::ops {
namespace {

struct Axis {
  int64_t dst, src, kernel, stride, padding;
};

using base::ceil_div;

// Taps of destination `i` in the order of the panel: forward as they lie; backward from the last
// tap to the first, so that the source index rises with the row of the transposed panel.
std::vector<std::pair<int32_t, int32_t>> taps_of(const Axis& axis, Direction direction, int64_t i) {
  std::vector<std::pair<int32_t, int32_t>> taps;  // (k, source)
  for (int64_t k = 0; k < axis.kernel; ++k) {
    int64_t source = i * axis.stride + k - axis.padding;
    if (direction == Direction::kBackwardData) {
      const int64_t scaled = i + axis.padding - (axis.kernel - 1 - k);
      if (scaled % axis.stride != 0) continue;
      source = scaled / axis.stride;
      if (scaled < 0) continue;
    }
    if (source < 0 || source >= axis.src) continue;
    taps.emplace_back(static_cast<int32_t>(k), static_cast<int32_t>(source));
  }
  return taps;
}

std::vector<AxisClass> classify(const Axis& axis, Direction direction) {
  std::vector<AxisClass> classes;
  for (int64_t i = 0; i < axis.dst; ++i) {
    const auto taps = taps_of(axis, direction, i);
    const int32_t base = taps.empty() ? 0 : taps.front().second;
    const auto same = [&](const AxisClass& c) {
      return c.taps.size() == taps.size() &&
             std::equal(taps.begin(), taps.end(), c.taps.begin(), [&](auto& t, auto& other) {
               return t.first == other.k && t.second - base == other.delta;
             });
    };
    auto found = std::find_if(classes.begin(), classes.end(), same);
    if (found == classes.end()) {
      found = classes.insert(classes.end(), AxisClass{});
      for (const auto& [k, source] : taps) found->taps.push_back({k, source - base});
    }
    found->dst.push_back(static_cast<int32_t>(i));
    found->base.push_back(base);
  }
  return classes;
}

// Rows of src that the destinations [first, last) of the y axis reach.
int64_t source_span(const std::vector<AxisClass>& ys, int64_t first, int64_t last) {
  int64_t low = INT64_MAX, high = -1;
  for (const AxisClass& c : ys) {
    for (size_t i = 0; i < c.dst.size(); ++i) {
      if (c.taps.empty() || c.dst[i] < first || c.dst[i] >= last) continue;
      low = std::min<int64_t>(low, c.base[i]);
      high = std::max<int64_t>(high, c.base[i] + c.taps.back().delta);
    }
  }
  return high < low ? 0 : high - low + 1;
}

int64_t widest_span(const std::vector<AxisClass>& ys, int64_t rows, int64_t height) {
  int64_t widest = 0;
  for (int64_t y = 0; y < height; y += rows)
    widest = std::max(widest, source_span(ys, y, std::min(height, y + rows)));
  return widest;
}

}  // namespace

GatherPlan::GatherPlan(const ConvGeometry& g, Direction dir, int64_t n, Products multiplied)
    : geometry(g), direction(dir), samples(n), products(multiplied) {
  const bool forward = direction == Direction::kForward;
  src = forward ? g.in : g.out;
  dst = forward ? g.out : g.in;
  src_group = src.c / g.groups;
  src_units = units(products, src_group);
  dst_group = dst.c / g.groups;
  panels = ceil_div(dst_group, kPanel);
  ys = classify({dst.h, src.h, g.kernel_h, g.stride_h, g.padding_h}, direction);
  xs = classify({dst.w, src.w, g.kernel_w, g.stride_w, g.padding_w}, direction);

  tap_used.assign(static_cast<size_t>(g.taps()), false);
  const auto channels = static_cast<int32_t>(src_units);
  const auto row_floats = static_cast<int32_t>(src.w * src_units);
  for (const AxisClass& y : ys) {
    for (const AxisClass& x : xs) {
      segment_begin.push_back(static_cast<int32_t>(segments.size()));
      for (const auto& [ky, dy] : y.taps) {
        for (size_t i = 0; i < x.taps.size(); ++i) {
          const auto tap = static_cast<int32_t>(ky * g.kernel_w + x.taps[i].k);
          tap_used[static_cast<size_t>(tap)] = true;
          // Neighbouring taps on neighbouring pixels are one longer run of channels.
          const bool joins = i > 0 && x.taps[i].k == x.taps[i - 1].k + 1 &&
                             x.taps[i].delta == x.taps[i - 1].delta + 1;
          if (joins)
            segments.back().k += channels;
          else
            segments.push_back(
                {dy * row_floats + x.taps[i].delta * channels, tap * channels, channels});
        }
      }
    }
  }
  segment_begin.push_back(static_cast<int32_t>(segments.size()));

  // Taken together they share an L2 of 1 MiB, as AVX-512 comes with, with a tile's rows.
  constexpr int64_t kPanelBytes = 640 << 10;
  constexpr int64_t kSharedPanelBytes = 4 << 20;
  const int64_t panel_bytes = panel_units() * int64_t{sizeof(float)};
  at_once =
      PanelGroups{panels, std::clamp<int64_t>(kPanelBytes / panel_bytes, 1, most_panels(products))}
          .largest();

  // A tile's source and result rows should stay in L2 (512 KiB on the smallest core we care for)
  // beside one panel; at least 16 tiles let two to four uneven cores share the work.
  constexpr int64_t kTileFloats = 192 * 1024 / 4;
  constexpr int64_t kWantedTiles = 16;
  constexpr int64_t kSharedFloats = (2 << 20) / 4;
  const int64_t src_row = src.w * src_units, dst_row = dst.w * std::min(dst_group, panels * kPanel);
  const auto floats = [&](int64_t rows) {
    return std::max(widest_span(ys, rows, dst.h) * src_row, rows * dst_row);
  };
  tile_rows = dst.h;
  while (tile_rows > 1 && floats(tile_rows) > kTileFloats) tile_rows = ceil_div(tile_rows, 2);
  tile_samples = tile_rows < dst.h
                     ? 1
                     : std::clamp<int64_t>(kTileFloats / std::max<int64_t>(1, floats(dst.h)), 1, n);
  tile_panels = panels;
  shared_source = false;
  const auto cut = [&] {
    return ceil_div(n, tile_samples) * ceil_div(dst.h, tile_rows) * g.groups;
  };
  // More tiles: fewer samples each while the rows outweigh the weights. Otherwise the panels are
  // divided, and all tiles read one copy of the source where that is small.
  // Blocks take 32 rows at once, and weights are read anew for every tile.
  constexpr int64_t kBlockRows = 64;
  const bool blocks = multiplied == Products::kBf16 && simd::multiplies_blocks();
  const int64_t least = blocks ? ceil_div(kBlockRows, dst.pixels()) : 6;
  const int64_t weight_floats = panels * kPanel * g.taps() * src_units;
  if (weight_floats < tile_samples * src.h * src_row)
    while (cut() < kWantedTiles && tile_samples > least)
      tile_samples = std::max(least, ceil_div(tile_samples, 2));
  if (cut() < kWantedTiles && panels > 1) {
    if (g.groups == 1 && tile_rows == dst.h &&
        n * src.pixels() * units(products, src.c) <= kSharedFloats) {
      shared_source = true;
      // Blocks rather take few panels and many rows, which they read as fast as panels; rows of
      // larger maps must be gathered, for more than two.
      constexpr int64_t kSmallMap = 4;
      tile_panels =
          blocks ? std::min<int64_t>(dst.pixels() <= kSmallMap ? 2 : 4, at_once) : at_once;
      const int64_t most = std::max(least, kTileFloats / (dst.pixels() * tile_panels * kPanel));
      const int64_t pieces = ceil_div(panels, tile_panels);
      const int64_t cuts = std::max(ceil_div(n, most), ceil_div(kWantedTiles, pieces));
      tile_samples = std::min(n, std::max(least, ceil_div(n, cuts)));
    } else {
      tile_panels = ceil_div(panels, std::min(panels, ceil_div(kWantedTiles, cut())));
      tile_panels = std::min(panels, ceil_div(tile_panels, at_once) * at_once);
    }
  }
  tile_src_rows = widest_span(ys, tile_rows, dst.h);
  keeps_panels = tile_panels <= at_once && panels * panel_bytes > kPanelBytes;
  shared_panels = 0;
  if ((!forward || products == Products::kBf16) && !keeps_panels && g.groups == 1 && cut() > 1) {
    const int64_t most = std::max(at_once, kSharedPanelBytes / panel_bytes);
    const int64_t even = PanelGroups{panels, most}.largest();
    shared_panels = std::min(panels, ceil_div(even, at_once) * at_once);
    tile_panels = std::min(tile_panels, shared_panels);
  }
}

size_t GatherPlan::tiles(int64_t of_panels) const {
  return static_cast<size_t>(ceil_div(samples, tile_samples) * ceil_div(dst.h, tile_rows) *
                             geometry.groups * ceil_div(of_panels, tile_panels));
}

int64_t GatherPlan::shared_source_floats() const {
  return shared_source ? samples * src.pixels() * units(products, src.c) : 0;
}

size_t GatherPlan::shared_bytes() const {
  return padded_bytes(shared_source_floats()) + padded_bytes(shared_panels * panel_units());
}

size_t GatherPlan::worker_bytes() const {
  const int64_t positions = tile_samples * tile_rows * dst.w;
  const int64_t source = shared_source ? 0 : tile_samples * tile_src_rows * src.w * src_units;
  const int64_t panel = worker_panels() * panel_units();
  const int64_t results = positions * tile_panels * kPanel;
  const auto classes = static_cast<int64_t>(ys.size() * xs.size());
  return padded_bytes(source) + padded_bytes(panel) + padded_bytes(results) +
         padded_bytes(positions * 2) + padded_bytes(classes * 4) + padded_bytes(1);
}

}  // namespace tri::ops
