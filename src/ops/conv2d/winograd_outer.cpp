#include "ops/conv2d/winograd_outer.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "base/check.h"
#include "ops/conv2d/outer_job.h"
#include "ops/conv2d/winograd.h"
#include "ops/conv2d/winograd_block.h"
#include "ops/conv2d/winograd_kernel.h"
#include "ops/rows/scratch_floats.h"
#include "ops/rows/transform_kernel.h"

namespace tri::ops {
namespace {

using base::ceil_div;

// Packed at a time: small beside the activations, large beside the cost of two barriers.
constexpr int64_t kUnitBytes = 2 << 20;
// So that sums are fetched and stored seldom, and a unit's panels of g stay in L1.
constexpr int64_t kLeastLength = 32, kMostLength = 256;
// Units apart: all sums of dW and a unit's operands share L2, slots cost little beside the operands
// of a span, and a chunk of them is no larger than a packed unit is otherwise.
constexpr int64_t kApartSums = 320 << 10, kApartUnitBytes = 512 << 10, kApartSpan = 8;
// Lines of patches packed together: their rows are loaded once, but for two.
constexpr int64_t kShareLines = 4;
// Enough for uneven cores: frequencies are cut into so many parts, taps into so many jobs.
constexpr int64_t kFrequencyParts = 2, kWantedJobs = 32;

// One operand of a unit, with products of fp32: rows [frequency][patch][channel]; with pairs panels
// of `width` channels, [frequency][panel][pair of patches][width]. All in units (Note [Units] in
// pair_kernel.h).
struct Operand {
  Operand(const WinogradOuterPlan& p, int64_t c, int64_t panels, int64_t panel_width)
      : channels(c), width(panel_width), padding(panels * panel_width - c) {
    const bool rows = p.products == Products::kF32;
    step = rows ? row_step(panels * width) : width;
    panel = rows ? width : p.unit_length * width + kSkew;
    frequency = (rows ? p.unit_length * step : panels * panel) + kSkew;
  }
  int64_t channels, width;
  int64_t padding;                 // of the last panel
  int64_t step, panel, frequency;  // from one position, panel or frequency to the next
};

struct Layout {
  explicit Layout(const WinogradOuterPlan& p)
      : x(p, p.geometry.in.c, p.in_panels, p.in_width),
        g(p, p.geometry.out.c, p.out_panels, kPanel),
        g_begin(kFrequencies * x.frequency),
        size(g_begin + kFrequencies * g.frequency) {}
  Operand x, g;
  int64_t g_begin, size;
};

struct Sizes {
  explicit Sizes(const WinogradOuterPlan& p)
      : columns(2 * p.patches_w + 2),
        block((2 * p.share_lines + 2) * columns * std::max(p.geometry.in.c, p.geometry.out.c)),
        taps(p.geometry.taps() * p.job_panels * p.in_width * kPanel),
        unit(p.apart ? Layout(p).size : 0),
        frequency_sums(p.in_panels * p.out_panels * p.in_width * kPanel),
        sums(p.apart ? kFrequencies * frequency_sums : 0) {}
  int64_t columns;
  int64_t block, taps, unit;
  int64_t frequency_sums, sums;  // of one frequency; of all, with units apart
};

struct Workspace {
  Workspace(const Sizes& size, std::byte* memory) {
    ScratchFloats scratch(memory);
    block = scratch.take(size.block);
    taps = scratch.take(size.taps);
    sums = scratch.take(size.sums);
    unit = scratch.take(size.unit);
  }
  float* block;  // [row][column][channel] of one tensor, zeros where it has none
  float* taps;   // [tap][in panel of the job][rows][16]
  float* sums;   // [frequency][out panel][in panel][rows][16], with units apart
  float* unit;   // packed, with units apart
};

// Some lines of patches of one sample of a unit.
struct Share {
  int64_t sample, line, lines;
  int64_t begin;  // where it starts in the unit's packed panels
};

Share share_of(const WinogradOuterPlan& p, const WinogradOuterPlan::Unit& u, size_t index) {
  const int64_t each = ceil_div(u.lines, p.share_lines);
  const int64_t n = static_cast<int64_t>(index) / each;
  const int64_t first = static_cast<int64_t>(index) % each * p.share_lines;
  return {u.sample + n, u.line + first, std::min(p.share_lines, u.lines - first),
          (n * u.lines + first) * p.line_units};
}

using ToRows = void (*)(const float* src, int64_t line, int64_t channels, int64_t tiles, float* dst,
                        int64_t step, int64_t stride) noexcept;
using ToPairs = void (*)(const float* src, int64_t line, int64_t channels, int64_t tiles,
                         const WinogradPanels& to) noexcept;

// A line of patches, to where it begins in the first frequency.
void place_line(const WinogradOuterPlan& p, ToRows rows, ToPairs pairs, const float* src,
                int64_t row, const Operand& at, float* to) {
  const int64_t c = at.channels;
  if (p.products == Products::kF32) {
    rows(src, row, c, p.patches_w, to, at.step, at.frequency);
    for (int64_t i = 0; at.padding > 0 && i < kFrequencies * p.patches_w; ++i)
      std::fill_n(to + i / p.patches_w * at.frequency + i % p.patches_w * at.step + c, at.padding,
                  0.0f);
    return;
  }
  pairs(src, row, c, p.patches_w, {to, at.width, at.step, at.panel, at.frequency});
}

void pack_input(const WinogradOuterPlan& p, const Share& s, const Source& x, const Layout& at,
                const Sizes& size, const Workspace& work, float* packed) {
  const ConvGeometry& g = p.geometry;
  const int64_t c = g.in.c, row = size.columns * c;
  load_block(
      g.in, s.sample, 2 * s.line - g.padding_h, 2 * s.lines + 2, g.padding_w, size.columns,
      [&](const RowRange& range, float* to) { load_rows(x, range, to, c); }, work.block);
  for (int64_t i = 0; i < s.lines; ++i)
    place_line(p, winograd_source, winograd_source_panels, work.block + 2 * i * row, row, at.x,
               packed + (s.begin + i * p.line_units) * at.x.step);
}

void pack_gradient(const WinogradOuterPlan& p, const Share& s, const GradSource& d,
                   const Layout& at, const Sizes& size, const Workspace& work, float* packed) {
  const int64_t c = p.geometry.out.c, row = size.columns * c;
  load_block(
      p.geometry.out, s.sample, 2 * s.line, 2 * s.lines, 0, size.columns,
      [&](const RowRange& range, float* to) { load_grad_rows(d, range, to, c); }, work.block);
  for (int64_t i = 0; i < s.lines; ++i)
    place_line(p, winograd_gradient, winograd_gradient_panels, work.block + 2 * i * row, row, at.g,
               packed + at.g_begin + (s.begin + i * p.line_units) * at.g.step);
}

// Adds a unit's products of one frequency to its sums, [out panel][in panel][rows][16], for out
// panels [begin, end).
void multiply(const WinogradOuterPlan& p, const WinogradOuterPlan::Unit& unit, const Layout& at,
              const float* packed, int64_t frequency, int64_t begin, int64_t end, float* sums) {
  const bool pairs = p.products == Products::kBf16;
  const int64_t length = unit.samples * unit.lines * p.line_units;
  const int64_t at_once = pairs ? length : kRowsAtOnce;
  const int64_t panel_sums = p.in_panels * p.in_width * kPanel;
  const OuterPanels x{packed + frequency * at.x.frequency, at.x.step, at.x.panel, p.in_panels};
  const OuterPanels g{packed + at.g_begin + frequency * at.g.frequency + begin * at.g.panel,
                      at.g.step, at.g.panel, end - begin};
  for (int64_t first = 0; first < length; first += at_once) {
    const auto from = static_cast<int32_t>(first);
    const Run some{from, from, static_cast<int32_t>(std::min(at_once, length - first))};
    (pairs ? pair_outer_tile : outer_tile)(x, g, &some, 1, sums + begin * panel_sums, panel_sums);
  }
}

}  // namespace

bool can_winograd_weights(const ConvGeometry& g, Products products) {
  if (!can_winograd(g) || g.in.c % 2 != 0) return false;  // taps are handed over one by one
  // Where forward and backward-data gain by many channels alone, dW would lose.
  constexpr int64_t kLeastPairedMap = 8;
  return products == Products::kF32 || std::min(g.out.h, g.out.w) >= kLeastPairedMap;
}

WinogradOuterPlan::WinogradOuterPlan(const ConvGeometry& g, int64_t n, int64_t ghost,
                                     Products multiplied)
    : geometry(g),
      samples(n),
      products(multiplied),
      patches_h(ceil_div(g.out.h, 2)),
      patches_w(ceil_div(g.out.w, 2)),
      line_units(ops::units(products, patches_w)),
      channels(g.in.c),
      in_width(outer_rows()),
      in_panels(ceil_div(g.in.c, in_width)),
      out_panels(g.panels()),
      job_panels(panels_of_job(in_panels, out_panels, kWantedJobs)) {
  TRI_CHECK(can_winograd_weights(g, products), "in = {}, out = {}", g.in.text(), g.out.text());
  if (ghost == 0) ghost = n;
  ghosts = ceil_div(n, ghost);
  const int64_t bytes_each =
      kFrequencies * (in_panels * in_width + out_panels * kPanel) * int64_t{sizeof(float)};
  const int64_t rows = in_panels * in_width, width = out_panels * kPanel;
  apart = kFrequencies * rows * width * int64_t{sizeof(float)} <= kApartSums;
  const int64_t wanted =
      std::clamp((apart ? kApartUnitBytes : kUnitBytes) / bytes_each, kLeastLength, kMostLength);
  const int64_t strips =
      ceil_div(patches_h, std::clamp<int64_t>(wanted / line_units, 1, patches_h));
  const int64_t lines = ceil_div(patches_h, strips);
  const int64_t together =
      strips > 1 ? 1 : std::clamp<int64_t>(wanted / (patches_h * line_units), 1, ghost);
  unit_length = together * lines * line_units;
  share_lines = std::min(kShareLines, lines);
  const auto slot_bytes = static_cast<int64_t>(slot_floats() * sizeof(float));
  const auto span_units =
      static_cast<size_t>(ceil_div(kApartSpan * slot_bytes, unit_length * bytes_each));
  chunk_spans = static_cast<size_t>(std::max<int64_t>(1, kUnitBytes / slot_bytes));
  for (int64_t first = 0; first < n; first += ghost) {
    const int64_t end = std::min(n, first + ghost);
    const size_t before = units.size();
    for (int64_t s = first; s < end; s += together)
      for (int64_t line = 0; line < patches_h; line += lines)
        units.push_back({s, std::min(together, end - s), line, std::min(lines, patches_h - line),
                         false, false});
    units[before].begins = units.back().ends = true;
    for (size_t unit = before; apart && unit < units.size(); unit += span_units)
      spans.push_back({unit, std::min(units.size(), unit + span_units)});
  }
  chunk_spans = std::min(chunk_spans, std::max<size_t>(spans.size(), 1));
}

size_t WinogradOuterPlan::parts() const {
  return outer_jobs(*this) * static_cast<size_t>(geometry.taps());
}

size_t WinogradOuterPlan::slot_floats() const {
  return outer_jobs(*this) * static_cast<size_t>(geometry.taps() * job_panels * in_width * kPanel);
}

size_t WinogradOuterPlan::shared_bytes() const {
  if (apart) return padded_bytes(static_cast<int64_t>(chunk_spans * slot_floats()));
  return padded_bytes(Layout(*this).size) +
         padded_bytes(kFrequencies * Sizes(*this).frequency_sums);
}

size_t WinogradOuterPlan::worker_bytes() const {
  const Sizes size(*this);
  return padded_bytes(size.block) + padded_bytes(size.taps) + padded_bytes(size.sums) +
         padded_bytes(size.unit);
}

namespace {

// One call's view of a plan: what all its tiles need.
struct Call {
  Call(const WinogradOuterPlan& plan, const Source& x_, const GradSource& d_, std::byte* scratch)
      : p(plan),
        x(x_),
        d(d_),
        at(plan),
        size(plan),
        shared(reinterpret_cast<float*>(scratch)),
        workers(scratch + plan.shared_bytes()),
        worker_bytes(plan.worker_bytes()) {}

  Workspace workspace(size_t worker) const { return {size, workers + worker * worker_bytes}; }
  size_t shares(const WinogradOuterPlan::Unit& unit) const {
    return static_cast<size_t>(unit.samples * ceil_div(unit.lines, p.share_lines));
  }
  // Tiles [0, 2 * shares): the input first.
  void pack(const WinogradOuterPlan::Unit& unit, size_t index, const Workspace& work,
            float* packed) const {
    const size_t half = shares(unit);
    if (index < half)
      pack_input(p, share_of(p, unit, index), x, at, size, work, packed);
    else
      pack_gradient(p, share_of(p, unit, index - half), d, at, size, work, packed);
  }
  int64_t stored_tap() const { return p.channels * kPanel; }

  const WinogradOuterPlan& p;
  const Source& x;
  const GradSource& d;
  const Layout at;
  const Sizes size;
  float* shared;
  std::byte* workers;
  size_t worker_bytes;
};

// What the sums of a job become, added to `before` where there is something.
void make_taps(const Call& c, const OuterJob& job, const float* sums, const float* before,
               float* to, int64_t to_stride) {
  winograd_taps({sums + (job.out_panel * c.p.in_panels + job.first_panel) * c.p.in_width * kPanel,
                 c.size.frequency_sums, before, c.stored_tap(), to, to_stride, job.rows * kPanel});
}

// The taps of a span, to its slot.
void sum_span(const Call& c, const WinogradOuterPlan::Span& span, const Workspace& work,
              float* slot) {
  std::fill_n(work.sums, c.size.sums, 0.0f);
  for (size_t u = span.begin; u < span.end; ++u) {
    const WinogradOuterPlan::Unit& unit = c.p.units[u];
    for (size_t i = 0; i < 2 * c.shares(unit); ++i) c.pack(unit, i, work, work.unit);
    for (int64_t f = 0; f < kFrequencies; ++f)
      multiply(c.p, unit, c.at, work.unit, f, 0, c.p.out_panels,
               work.sums + f * c.size.frequency_sums);
  }
  for (size_t index = 0; index < outer_jobs(c.p); ++index) {
    const OuterJob job(c.p, index, 0);
    make_taps(c, job, work.sums, nullptr, slot + static_cast<int64_t>(index) * c.size.taps,
              job.tap_floats());
  }
}

void backward_apart(const Call& c, const float* initial, float* partial, GradConsumer& consumer,
                    base::ThreadPool& pool) {
  const WinogradOuterPlan& p = c.p;
  const auto slot_floats = static_cast<int64_t>(p.slot_floats());
  const auto slot_of = [&](size_t i) { return c.shared + static_cast<int64_t>(i) * slot_floats; };
  for (size_t first = 0; first < p.spans.size(); first += p.chunk_spans) {
    const size_t count = std::min(p.chunk_spans, p.spans.size() - first);
    pool.run(count, [&](size_t i, size_t worker) {
      sum_span(c, p.spans[first + i], c.workspace(worker), slot_of(i));
    });
    const float* before = first == 0 ? initial : partial;
    const bool last = first + count == p.spans.size();
    pool.run(outer_jobs(p), [&](size_t index, size_t worker) {
      const OuterJob job(p, index, 0);
      float* taps = c.workspace(worker).taps;
      for (int64_t tap = 0; tap < p.geometry.taps(); ++tap) {
        const int64_t floats = job.rows * kPanel, stored = job.begin + tap * c.stored_tap();
        float* sums = taps + tap * job.tap_floats();
        if (before == nullptr)
          std::fill_n(sums, floats, 0.0f);
        else
          std::copy_n(before + stored, floats, sums);
        for (size_t i = 0; i < count; ++i)
          add_floats(
              slot_of(i) + static_cast<int64_t>(index) * c.size.taps + tap * job.tap_floats(),
              floats, sums);
        if (!last) std::copy_n(sums, floats, partial + stored);
      }
      if (last) deliver_taps(job, index, p.geometry.taps(), p.channels, taps, consumer);
    });
  }
}

}  // namespace

void conv_backward_weights(const WinogradOuterPlan& p, const Source& x, const GradSource& d,
                           const float* initial, float* partial, GradConsumer& consumer,
                           std::byte* scratch, base::ThreadPool& pool) noexcept {
  const Call c(p, x, d, scratch);
  if (p.apart) return backward_apart(c, initial, partial, consumer, pool);
  auto* const sums = reinterpret_cast<float*>(scratch + padded_bytes(c.at.size));
  const int64_t part_panels = 2 * ceil_div(p.out_panels, 2 * kFrequencyParts);  // as pairs like it
  const int64_t panel_sums = p.in_panels * p.in_width * kPanel;
  const float* before = initial;
  for (const WinogradOuterPlan::Unit& unit : p.units) {
    pool.run(2 * c.shares(unit), [&](size_t index, size_t worker) {
      c.pack(unit, index, c.workspace(worker), c.shared);
    });
    pool.run(static_cast<size_t>(kFrequencies * kFrequencyParts), [&](size_t index, size_t) {
      const int64_t f = static_cast<int64_t>(index) / kFrequencyParts;
      const int64_t begin = static_cast<int64_t>(index) % kFrequencyParts * part_panels;
      const int64_t end = std::min(p.out_panels, begin + part_panels);
      if (begin >= end) return;
      float* const of_one = sums + f * c.size.frequency_sums;
      if (unit.begins) std::fill_n(of_one + begin * panel_sums, (end - begin) * panel_sums, 0.0f);
      multiply(p, unit, c.at, c.shared, f, begin, end, of_one);
    });
    if (!unit.ends) continue;
    const bool last = &unit == &p.units.back();
    pool.run(outer_jobs(p), [&](size_t index, size_t worker) {
      const OuterJob job(p, index, 0);
      float* const taps = c.workspace(worker).taps;
      make_taps(c, job, sums, before == nullptr ? nullptr : before + job.begin,
                last ? taps : partial + job.begin, last ? job.tap_floats() : c.stored_tap());
      if (last) deliver_taps(job, index, p.geometry.taps(), p.channels, taps, consumer);
    });
    before = partial;
  }
}

}  // namespace tri::ops
