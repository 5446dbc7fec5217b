#include "ops/conv2d/gather_conv.h"

#include <algorithm>
#include <array>

#include "ops/conv2d/panel_weights.h"
#include "ops/conv2d/unit_rows.h"
#include "ops/rows/counts.h"
#include "ops/rows/scratch_floats.h"

namespace tri::ops {
namespace {

// Fixed parts of one worker's scratch.
struct Workspace {
  Workspace(const GatherPlan& plan, std::byte* memory) {
    ScratchFloats scratch(memory);
    const int64_t positions = plan.tile_samples * plan.tile_rows * plan.dst.w;
    source = scratch.take(plan.shared_source ? 0
                                             : plan.tile_samples * plan.tile_src_rows * plan.src.w *
                                                   plan.src_units);
    panels = scratch.take(plan.worker_panels() * plan.panel_units());
    results = scratch.take(positions * plan.tile_panels * kPanel);
    rows = reinterpret_cast<RowRef*>(scratch.take(positions * 2));
    kept = reinterpret_cast<int32_t*>(scratch.take(1));
    classes = reinterpret_cast<RowClass*>(scratch.rest());
  }
  float* source;
  float* panels;
  float* results;
  RowRef* rows;
  int32_t* kept;  // the first of the panels, of all groups; -1: none yet
  RowClass* classes;
};

// One tile in numbers: half-open ranges of samples, rows of dst and panels of one group.
struct Tile {
  Tile(const GatherPlan& p, int64_t first_panel, int64_t last_panel, size_t index) {
    auto rest = static_cast<int64_t>(index);
    const auto cut = [&rest](int64_t whole, int64_t part, int64_t& begin, int64_t& end) {
      const int64_t pieces = (whole + part - 1) / part;
      begin = rest % pieces * part;
      end = std::min(whole, begin + part);
      rest /= pieces;
    };
    const auto cut_panels = [&] {
      cut(last_panel - first_panel, p.tile_panels, panel_begin, panel_end);
    };
    if (!p.keeps_panels) cut_panels();
    cut(p.dst.h, p.tile_rows, y_begin, y_end);
    cut(p.samples, p.tile_samples, n_begin, n_end);
    if (p.keeps_panels) cut_panels();
    panel_begin += first_panel;
    panel_end += first_panel;
    group = rest;
    src_begin = INT64_MAX;
    src_end = 0;
    for (const AxisClass& y : p.ys) {
      for (size_t i = 0; i < y.dst.size(); ++i) {
        if (y.taps.empty() || y.dst[i] < y_begin || y.dst[i] >= y_end) continue;
        src_begin = std::min<int64_t>(src_begin, y.base[i]);
        src_end = std::max<int64_t>(src_end, y.base[i] + y.taps.back().delta + 1);
      }
    }
    src_begin = std::min(src_begin, src_end);
  }
  int64_t panel_begin, panel_end, y_begin, y_end, n_begin, n_end, group;
  int64_t src_begin, src_end;  // rows of src
};

// Where a tile's source rows or results lie: packed in scratch, or in place when they are what is
// multiplied.
struct Placement {
  const float* base;
  int64_t sample_stride;  // units
  int64_t row_stride;     // units from one pixel to the next
};

// Panels of weights that follow each other, `stride` units apart.
struct PanelGroup {
  const float* first;
  int64_t stride;
};

// Lists the rows of the tile class by class. Returns the number of classes written.
size_t list_rows(const GatherPlan& p, const Tile& t, const Placement& src, const Placement& dst,
                 RowRef* rows, RowClass* classes) {
  size_t count = 0;
  int32_t row = 0;
  for (size_t yc = 0; yc < p.ys.size(); ++yc) {
    for (size_t xc = 0; xc < p.xs.size(); ++xc) {
      const AxisClass &y = p.ys[yc], &x = p.xs[xc];
      const int32_t begin = row;
      for (size_t i = 0; i < y.dst.size(); ++i) {
        if (y.dst[i] < t.y_begin || y.dst[i] >= t.y_end) continue;
        const int64_t src_y = y.taps.empty() ? 0 : y.base[i] - t.src_begin;
        for (int64_t n = 0; n < t.n_end - t.n_begin; ++n) {
          const int64_t from = n * src.sample_stride + src_y * p.src.w * src.row_stride;
          const int64_t to =
              n * dst.sample_stride + (y.dst[i] - t.y_begin) * p.dst.w * dst.row_stride;
          for (size_t j = 0; j < x.dst.size(); ++j)
            rows[row++] = {static_cast<int32_t>(from + x.base[j] * src.row_stride),
                           static_cast<int32_t>(to + x.dst[j] * dst.row_stride)};
        }
      }
      if (row == begin) continue;
      const size_t both = yc * p.xs.size() + xc;
      classes[count++] = {begin, row, p.segment_begin[both], p.segment_begin[both + 1]};
    }
  }
  return count;
}

// One call's view of a plan: what all its tiles need. `load(range, dst)` fills rows of the source;
// `panel(group, index, scratch)` gives weights: in scratch, or where they lie.
template <class Load, class Panel>
struct Call {
  const GatherPlan& p;
  const float* direct_src;  // of all samples, where rows are multiplied where they lie, or null
  const Load& load;
  const Panel& panel;
  const float* bias;
  const Sink& sink;
  const float* shared_rows;
  const float* shared_panels;  // from `first_panel` on
  int64_t first_panel;
  bool rounded;      // results are what the tensor stores
  bool sink_direct;  // results go there

  // `count` panels that follow each other.
  PanelGroup weights(int64_t group, int64_t first, int64_t count, const Workspace& work) const {
    const int64_t each = p.panel_units();
    if (p.shared_panels > 0) return {shared_panels + (first - first_panel) * each, each};
    const auto index = static_cast<int32_t>(group * p.panels + first);
    if (p.keeps_panels && *work.kept == index) return {work.panels, each};
    const float* const at = panel(group, first, work.panels);
    if (at != work.panels) return {at, p.geometry.panel_floats()};
    for (int64_t i = 1; i < count; ++i) panel(group, first + i, work.panels + i * each);
    *work.kept = index;
    return {work.panels, each};
  }

  StoreCounts run_tile(const Tile& t, const Workspace& work, size_t worker) const {
    const int64_t src_pixels = (t.src_end - t.src_begin) * p.src.w;
    const int64_t row_units = units(p.products, p.src.c);  // of all groups
    Placement src{work.source, src_pixels * p.src_units, p.src_units};
    if (const float* whole = direct_src != nullptr ? direct_src : shared_rows; whole != nullptr) {
      src = {whole + (t.n_begin * p.src.pixels() + t.src_begin * p.src.w) * row_units,
             p.src.pixels() * row_units, row_units};
    } else {
      for (int64_t n = t.n_begin; n < t.n_end; ++n)
        load(RowRange{n, t.src_begin * p.src.w, src_pixels, t.group * p.src_group, p.src_group},
             work.source + (n - t.n_begin) * src.sample_stride);
    }

    const int64_t dst_pixels = (t.y_end - t.y_begin) * p.dst.w;
    const int64_t width = (t.panel_end - t.panel_begin) * kPanel;
    Placement dst{work.results, dst_pixels * width, width};
    float* results = work.results;
    const int64_t first_channel = t.group * p.dst_group + t.panel_begin * kPanel;
    const int64_t first_result =
        (t.n_begin * sink.pixels + t.y_begin * p.dst.w) * sink.row_stride + first_channel;
    if (sink_direct) {
      if (!rounded) results = static_cast<float*>(sink.data) + first_result;
      dst = {results, sink.pixels * sink.row_stride, sink.row_stride};
    }

    const size_t class_count = list_rows(p, t, src, dst, work.rows, work.classes);
    StoreCounts counts;
    const PanelGroups groups{t.panel_end - t.panel_begin, p.at_once};
    for (int64_t i = 0; i < groups.count(); ++i) {
      const int64_t q = t.panel_begin + groups.begin(i);
      const int64_t panels = groups.begin(i + 1) - groups.begin(i);
      const float* row_bias = bias == nullptr ? nullptr : bias + t.group * p.dst_group + q * kPanel;
      std::array<float, kMostPanels * kPanel>
          end_bias;  // whole panels are read, also where the group ends
      const int64_t left = p.dst_group - q * kPanel;
      if (bias != nullptr && left < panels * kPanel) {
        end_bias.fill(0);
        std::copy_n(row_bias, left, end_bias.data());
        row_bias = end_bias.data();
      }
      const PanelGroup some = weights(t.group, q, panels, work);
      const PanelTile tile{
          src.base,  some.first,        row_bias,     results + (q - t.panel_begin) * kPanel,
          work.rows, p.segments.data(), work.classes, class_count};
      if (rounded)
        counts += pair_tile_rounded(
            tile, static_cast<uint16_t*>(sink.data) + first_result + (q - t.panel_begin) * kPanel,
            std::min(panels * kPanel, left), panels, some.stride);
      else if (p.products == Products::kBf16)
        pair_tile(tile, panels, some.stride);
      else
        panel_tile(tile, panels, some.stride);
    }
    const int64_t channels = std::min(width, p.dst_group - t.panel_begin * kPanel);
    // Whole maps lie one after the other and are stored in one call: a map may be a single pixel.
    const int64_t together = dst_pixels == sink.pixels ? t.n_end - t.n_begin : 1;
    for (int64_t n = t.n_begin; n < t.n_end; n += together) {
      const RowRange range{n, t.y_begin * p.dst.w, together * dst_pixels, first_channel, channels};
      if (!sink_direct)
        counts += store_rows(sink, range, results + (n - t.n_begin) * dst.sample_stride, width);
      sink.tell(range, worker);
    }
    return counts;
  }
};

template <class Load, class Panel>
StoreCounts gather(const GatherPlan& p, const float* direct_src, int64_t direct_stride,
                   const Load& load, const Panel& panel, const float* bias, const Sink& sink,
                   std::byte* scratch, base::ThreadPool& pool) {
  const bool src_direct =
      direct_src != nullptr && p.geometry.groups == 1 && direct_stride == p.src.c;
  const bool shared = p.shared_source && !src_direct;
  auto* const shared_rows = reinterpret_cast<float*>(scratch);
  auto* const panels = reinterpret_cast<float*>(scratch + padded_bytes(p.shared_source_floats()));
  std::byte* const workers = scratch + p.shared_bytes();
  if (shared)
    pool.run(static_cast<size_t>(p.samples), [&](size_t n, size_t) {
      const auto sample = static_cast<int64_t>(n);
      load(RowRange{sample, 0, p.src.pixels(), 0, p.src.c},
           shared_rows + sample * p.src.pixels() * units(p.products, p.src.c));
    });
  const bool rounded = takes_rounded(p.products, sink);
  Call<Load, Panel> call{p,
                         src_direct ? direct_src : nullptr,
                         load,
                         panel,
                         bias,
                         sink,
                         shared ? shared_rows : nullptr,
                         panels,
                         0,
                         rounded,
                         rounded || (sink.direct() && p.dst_group % kPanel == 0)};
  const auto workspace = [&](size_t worker) {
    return Workspace(p, workers + worker * p.worker_bytes());
  };
  for (size_t worker = 0; worker < pool.threads(); ++worker) *workspace(worker).kept = -1;
  CountSum counted;
  for (int64_t first = 0; first < p.panels; first += p.pass_panels()) {
    const int64_t end = std::min(p.panels, first + p.pass_panels());
    call.first_panel = first;
    if (p.shared_panels > 0)
      pool.run(static_cast<size_t>(end - first), [&](size_t i, size_t) {
        const auto index = static_cast<int64_t>(i);
        panel(0, first + index, panels + index * p.panel_units());
      });
    pool.run(p.tiles(end - first), [&](size_t index, size_t worker) {
      counted.add(call.run_tile(Tile(p, first, end, index), workspace(worker), worker));
    });
  }
  return counted.total();
}

}  // namespace

StoreCounts conv_forward(const GatherPlan& plan, const Source& src, const Weights& weights,
                         const float* bias, const Sink& dst, std::byte* scratch,
                         base::ThreadPool& pool) noexcept {
  return gather(
      plan, units_in_place(src, plan.products), src.stored.row_stride,
      [&](const RowRange& range, float* to) { load_unit_rows(src, range, plan.products, to); },
      [&](int64_t group, int64_t panel, float* memory) {
        return forward_panel(plan.geometry, weights, group, panel, &plan.tap_used, memory,
                             plan.products);
      },
      bias, dst, scratch, pool);
}

StoreCounts conv_backward_data(const GatherPlan& plan, const GradSource& src,
                               const Weights& weights, const Sink& dst, std::byte* scratch,
                               base::ThreadPool& pool) noexcept {
  return gather(
      plan, units_in_place(src, plan.products), src.grad.row_stride,
      [&](const RowRange& range, float* to) { load_unit_rows(src, range, plan.products, to); },
      [&](int64_t group, int64_t panel, float* memory) {
        return backward_panel(plan.geometry, weights, group, panel, &plan.tap_used, memory,
                              plan.products);
      },
      nullptr, dst, scratch, pool);
}

}  // namespace tri::ops
