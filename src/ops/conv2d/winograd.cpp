#include "ops/conv2d/winograd.h"

#include <algorithm>
#include <array>

#include "base/ceil_div.h"
#include "base/check.h"
#include "ops/conv2d/panel_weights.h"
#include "ops/conv2d/winograd_block.h"
#include "ops/conv2d/winograd_kernel.h"
#include "ops/rows/counts.h"
#include "ops/rows/scratch_floats.h"

namespace tri::ops {
namespace {

using base::ceil_div;

// Transformed sources of a tile: a quarter of a 512 KiB L2, beside the weights of a panel.
constexpr int64_t kTileUnits = 32 * 1024;
// Transformed weights at a time: more would cost memory, fewer would transform the sources too
// often.
constexpr int64_t kWeightBytes = 4 << 20;
// Fewer patches would read the weights too often.
constexpr int64_t kLeastPatches = 16;
// Enough for uneven cores.
constexpr int64_t kWantedTiles = 16;

// Sizes of one worker's scratch in floats. A block is the part of src under a tile's patches of one
// sample, padding included.
struct Sizes {
  explicit Sizes(const WinogradPlan& p)
      : block_columns(2 * p.patches_w + 2),
        block((2 * p.tile_lines + 2) * block_columns * p.src.c),
        source_stride(p.tile_patches() * p.src_units + kSkew),
        // A panel of weights is made ready here, before there are sources.
        source(std::max(kFrequencies * source_stride, p.geometry.taps() * p.src.c * kPanel)),
        patch_sums(p.panels_at_once() * kPanel),
        sums_stride(p.tile_patches() * patch_sums + kSkew),
        sums(kFrequencies * sums_stride),
        results(4 * p.tile_patches() * p.tile_panels * kPanel),
        rows(2 * p.tile_patches()) {}
  int64_t block_columns;
  int64_t block;
  int64_t source_stride, source;  // of one frequency, of all
  int64_t patch_sums, sums_stride, sums;
  int64_t results, rows;
};

struct Workspace {
  Workspace(const Sizes& size, std::byte* memory) {
    ScratchFloats scratch(memory);
    block = scratch.take(size.block);
    source = scratch.take(size.source);
    sums = scratch.take(size.sums);
    results = scratch.take(size.results);
    rows = reinterpret_cast<RowRef*>(scratch.rest());
  }
  float* block;    // [line][column][src channel]
  float* source;   // [frequency][patch][src unit]
  float* sums;     // [frequency][patch][panel of panels_at_once()][16]
  float* results;  // [sample][line][column][channels of the tile's panels]
  RowRef* rows;
};

// Half-open ranges of panels, lines of patches and samples.
struct Tile {
  Tile(const WinogradPlan& p, int64_t first_panel, int64_t last_panel, size_t index) {
    auto rest = static_cast<int64_t>(index);
    const auto cut = [&rest](int64_t whole, int64_t part, int64_t& begin, int64_t& end) {
      const int64_t pieces = ceil_div(whole, part);
      begin = rest % pieces * part;
      end = std::min(whole, begin + part);
      rest /= pieces;
    };
    cut(last_panel - first_panel, p.tile_panels, panel_begin, panel_end);
    panel_begin += first_panel;
    panel_end += first_panel;
    cut(p.patches_h, p.tile_lines, line_begin, line_end);
    cut(p.samples, p.tile_samples, n_begin, n_end);
  }
  int64_t panel_begin, panel_end, line_begin, line_end, n_begin, n_end;
};

// One call's view of a plan: what all its tiles need.
template <class Load>
struct Pass {
  bool pairs() const { return p.products == Products::kBf16; }
  int64_t frequency_units() const { return p.src_units * kPanel; }

  // Of all patches of the tile, which become the rows of 16 products. Returns how many.
  int32_t transform_sources(const Tile& t, const Workspace& work) const {
    const int64_t lines = t.line_end - t.line_begin, patches = lines * p.patches_w;
    const int64_t block_line = size.block_columns * p.src.c;
    int32_t row = 0;
    for (int64_t n = t.n_begin; n < t.n_end; ++n) {
      load_block(p.src, n, 2 * t.line_begin - p.padding_h, 2 * lines + 2, p.padding_w,
                 size.block_columns, load, work.block);
      for (int64_t i = 0; i < lines; ++i) {
        const float* const from = work.block + 2 * i * block_line;
        float* const to = work.source + ((n - t.n_begin) * patches + i * p.patches_w) * p.src_units;
        if (pairs())
          winograd_source_pairs(from, block_line, p.src.c, p.patches_w, to, size.source_stride);
        else
          winograd_source(from, block_line, p.src.c, p.patches_w, to, p.src.c, size.source_stride);
      }
      for (int64_t i = 0; i < patches; ++i, ++row)
        work.rows[row] = {static_cast<int32_t>(row * p.src_units),
                          static_cast<int32_t>(row * size.patch_sums)};
    }
    return row;
  }

  // Sums of `count` panels, whose weights begin at `panel`.
  void multiply(const float* panel, int64_t count, int32_t rows, const Workspace& work) const {
    const Segment segment{0, 0, static_cast<int32_t>(p.src_units)};
    const RowClass all{0, rows, 0, 1};
    for (int64_t f = 0; f < kFrequencies; ++f) {
      const PanelTile tile{work.source + f * size.source_stride,
                           panel + f * frequency_units(),
                           nullptr,
                           work.sums + f * size.sums_stride,
                           work.rows,
                           &segment,
                           &all,
                           1};
      if (pairs())
        pair_tile(tile, count, kFrequencies * frequency_units());
      else
        panel_tile(tile, count, kFrequencies * frequency_units());
    }
  }

  // Whole panels are read, also where the channels end.
  const float* bias_of(int64_t panel, std::array<float, kPanel>& end) const {
    if (bias == nullptr) return nullptr;
    const float* of_panel = bias + panel * kPanel;
    const int64_t left = p.dst.c - panel * kPanel;
    if (left >= kPanel) return of_panel;
    end.fill(0);
    std::copy_n(of_panel, left, end.data());
    return end.data();
  }

  StoreCounts run_tile(const Tile& t, const Workspace& work, size_t worker) const {
    const bool direct = sink.direct() && p.dst.c % kPanel == 0;
    const int64_t lines = t.line_end - t.line_begin, patches = lines * p.patches_w;
    const int64_t width = (t.panel_end - t.panel_begin) * kPanel;
    const int64_t first_y = 2 * t.line_begin, end_y = std::min(p.dst.h, 2 * t.line_end);
    const int64_t pixels = (end_y - first_y) * p.dst.w;
    float* results = work.results;
    int64_t pixel = width, sample = pixels * width;
    if (direct) {
      results = static_cast<float*>(sink.data) +
                (t.n_begin * sink.pixels + first_y * p.dst.w) * sink.row_stride +
                t.panel_begin * kPanel;
      pixel = sink.row_stride;
      sample = sink.pixels * sink.row_stride;
    }
    const int32_t rows = transform_sources(t, work);
    const PanelGroups groups{t.panel_end - t.panel_begin, p.panels_at_once()};
    for (int64_t group = 0; group < groups.count(); ++group) {
      const int64_t q = t.panel_begin + groups.begin(group);
      const int64_t end = t.panel_begin + groups.begin(group + 1);
      multiply(weights + (q - first_panel) * kFrequencies * frequency_units(), end - q, rows, work);
      for (int64_t one = q; one < end; ++one) {
        std::array<float, kPanel> end_bias;
        const float* const panel_bias = bias_of(one, end_bias);
        for (int64_t n = 0; n < t.n_end - t.n_begin; ++n)
          for (int64_t i = 0; i < lines; ++i)
            winograd_result(
                {work.sums + (n * patches + i * p.patches_w) * size.patch_sums + (one - q) * kPanel,
                 size.sums_stride, size.patch_sums, panel_bias,
                 results + n * sample + 2 * i * p.dst.w * pixel + (one - t.panel_begin) * kPanel,
                 p.dst.w * pixel, pixel, std::min<int64_t>(2, end_y - first_y - 2 * i), p.dst.w});
      }
    }
    const int64_t first = t.panel_begin * kPanel, used = std::min(width, p.dst.c - first);
    StoreCounts counts;
    for (int64_t n = t.n_begin; n < t.n_end; ++n) {
      const RowRange range{n, first_y * p.dst.w, pixels, first, used};
      if (!direct) counts += store_rows(sink, range, results + (n - t.n_begin) * sample, width);
      sink.tell(range, worker);
    }
    return counts;
  }

  const WinogradPlan& p;
  const Sizes& size;
  const Load& load;
  const float* bias;
  const Sink& sink;
  const float* weights;  // of the panels from `first_panel` on
  int64_t first_panel = 0;
};

// `panel(index, scratch)` gives weights, `load(range, dst)` rows of the source.
template <class Load, class Panel>
StoreCounts run(const WinogradPlan& p, const Load& load, const Panel& panel, const float* bias,
                const Sink& sink, std::byte* scratch, base::ThreadPool& pool) {
  auto* weights = reinterpret_cast<float*>(scratch);
  const Sizes size(p);
  const auto workspace = [&, bytes = p.worker_bytes()](size_t worker) {
    return Workspace(size, scratch + p.shared_bytes() + worker * bytes);
  };
  Pass<Load> pass{p, size, load, bias, sink, weights};
  CountSum counted;
  for (int64_t first = 0; first < p.panels; first += p.weight_panels) {
    const int64_t end = std::min(p.panels, first + p.weight_panels);
    pass.first_panel = first;
    pool.run(static_cast<size_t>(end - first), [&](size_t q, size_t worker) {
      const auto index = static_cast<int64_t>(q);
      const float* const from = panel(first + index, workspace(worker).source);
      float* const to = weights + index * kFrequencies * pass.frequency_units();
      if (pass.pairs())
        winograd_weight_pairs(from, p.src.c, to);
      else
        winograd_weights(from, pass.frequency_units(), to);
    });
    pool.run(p.tiles(end - first), [&](size_t index, size_t worker) {
      counted.add(pass.run_tile(Tile(p, first, end, index), workspace(worker), worker));
    });
  }
  return counted.total();
}

}  // namespace

bool can_winograd(const ConvGeometry& g) {
  constexpr int64_t kKernel = 3;
  const bool form = g.kernel_h == kKernel && g.kernel_w == kKernel && g.stride_h == 1 &&
                    g.stride_w == 1 && g.padding_h < kKernel && g.padding_w < kKernel &&
                    g.groups == 1;
  // Smaller ones have nothing to gain whatever the machine.
  return form && std::min({g.in.h, g.in.w, g.out.h, g.out.w}) >= 4 &&
         std::min(g.in.c, g.out.c) >= kPanel;
}

bool suits_winograd(const ConvGeometry& g, Products products) {
  constexpr int64_t kLeastMap = 8, kLeastChannels = 32, kLeastPairedChannels = 64;
  // On smaller maps the transforms of the weights and halves of patches weigh more.
  constexpr int64_t kFewFilters = 128 * 128;
  const bool whole_patches = g.out.h % 2 == 0 && g.out.w % 2 == 0;
  const bool small_pays = g.in.c * g.out.c <= kFewFilters && whole_patches;
  if (!can_winograd(g)) return false;
  const int64_t map = std::min({g.in.h, g.in.w, g.out.h, g.out.w});
  const int64_t channels = std::min(g.in.c, g.out.c);
  if (products == Products::kF32)
    return channels >= kLeastChannels && (map >= kLeastMap || small_pays);
  if (simd::multiplies_blocks()) return false;
  // Many channels make up for small maps: 64 at 8 x 8, 128 at 4 x 4; patches that results do not
  // fill ask for twice as many.
  constexpr int64_t kLeastWhole = kLeastMap * kLeastPairedChannels;
  return channels >= kLeastPairedChannels &&
         channels * map >= (whole_patches ? kLeastWhole : 2 * kLeastWhole);
}

WinogradPlan::WinogradPlan(const ConvGeometry& g, Direction dir, int64_t n, Products multiplied)
    : geometry(g), direction(dir), samples(n), products(multiplied) {
  TRI_CHECK(can_winograd(g), "in = {}, out = {}", g.in.text(), g.out.text());
  const bool forward = direction == Direction::kForward;
  src = forward ? g.in : g.out;
  dst = forward ? g.out : g.in;
  src_units = units(products, src.c);
  padding_h = forward ? g.padding_h : g.kernel_h - 1 - g.padding_h;
  padding_w = forward ? g.padding_w : g.kernel_w - 1 - g.padding_w;
  panels = ceil_div(dst.c, kPanel);
  patches_h = ceil_div(dst.h, 2);
  patches_w = ceil_div(dst.w, 2);
  const int64_t wanted = std::max(kLeastPatches, kTileUnits / (kFrequencies * src_units));
  const int64_t most = std::clamp<int64_t>(wanted / patches_w, 1, patches_h);
  tile_lines = ceil_div(patches_h, ceil_div(patches_h, most));
  tile_samples =
      tile_lines < patches_h ? 1 : std::clamp<int64_t>(wanted / (patches_h * patches_w), 1, n);
  const int64_t cut = ceil_div(n, tile_samples) * ceil_div(patches_h, tile_lines);
  // In whole groups of panels_at_once().
  const auto groups = [this](int64_t of) { return ceil_div(of, panels_at_once()); };
  const int64_t group_bytes =
      panels_at_once() * kFrequencies * src_units * kPanel * int64_t{sizeof(float)};
  const int64_t passes = ceil_div(groups(panels) * group_bytes, kWeightBytes);
  weight_panels = panels_at_once() * ceil_div(groups(panels), passes);
  const int64_t pieces = std::clamp<int64_t>(kWantedTiles / cut, 1, groups(weight_panels));
  tile_panels = panels_at_once() * ceil_div(groups(weight_panels), pieces);
}

size_t WinogradPlan::tiles(int64_t of_panels) const {
  return static_cast<size_t>(ceil_div(samples, tile_samples) * ceil_div(patches_h, tile_lines) *
                             ceil_div(of_panels, tile_panels));
}

size_t WinogradPlan::shared_bytes() const {
  return padded_bytes(std::min(panels, weight_panels) * kFrequencies * src_units * kPanel);
}

size_t WinogradPlan::worker_bytes() const {
  const Sizes size(*this);
  return padded_bytes(size.block) + padded_bytes(size.source) + padded_bytes(size.sums) +
         padded_bytes(size.results) + padded_bytes(size.rows);
}

StoreCounts conv_forward(const WinogradPlan& plan, const Source& src, const Weights& weights,
                         const float* bias, const Sink& dst, std::byte* scratch,
                         base::ThreadPool& pool) noexcept {
  TRI_CHECK(plan.direction == Direction::kForward);
  return run(
      plan, [&](const RowRange& range, float* to) { load_rows(src, range, to, plan.src.c); },
      [&](int64_t panel, float* memory) {
        return forward_panel(plan.geometry, weights, 0, panel, nullptr, memory);
      },
      bias, dst, scratch, pool);
}

StoreCounts conv_backward_data(const WinogradPlan& plan, const GradSource& src,
                               const Weights& weights, const Sink& dst, std::byte* scratch,
                               base::ThreadPool& pool) noexcept {
  TRI_CHECK(plan.direction == Direction::kBackwardData);
  return run(
      plan, [&](const RowRange& range, float* to) { load_grad_rows(src, range, to, plan.src.c); },
      [&](int64_t panel, float* memory) {
        return backward_panel(plan.geometry, weights, 0, panel, nullptr, memory);
      },
      nullptr, dst, scratch, pool);
}

}  // namespace tri::ops
