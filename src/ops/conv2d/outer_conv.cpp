#include "ops/conv2d/outer_conv.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

#include "numeric/format.h"
#include "ops/conv2d/outer_job.h"
#include "ops/conv2d/unit_rows.h"
#include "ops/rows/scratch_floats.h"
#include "ops/rows/transform_kernel.h"
#include "simd/finite.h"

namespace tri::ops {
namespace {

constexpr double kTwoRoundings = (1 + 0x1p-8) * (1 + 0x1p-8);  // of operands, to bf16

struct Workspace {
  Workspace(const OuterPlan& plan, std::byte* memory) {
    ScratchFloats scratch(memory);
    const ConvGeometry& g = plan.geometry;
    if (plan.apart) unit = scratch.take(static_cast<int64_t>(plan.unit_floats()));
    sums = scratch.take(plan.outs_at_once() * plan.job_sums());
    delivery = scratch.take(plan.delivery_floats());
    row_floats =
        std::max((g.in.w + 2 * g.padding_w + g.kernel_w) * g.group_in(), g.out.w * g.group_out());
    blocks = scratch.take(plan.block_floats());
    if (!plan.as_rows && !plan.blocks)
      row = scratch.take(plan.products == Products::kBf16 ? 2 * row_floats : row_floats);
    runs = reinterpret_cast<Run*>(scratch.rest());
  }
  float* unit = nullptr;  // packed, with units apart
  float* sums;            // [job of outs_at_once()][tap][in panel of the job][rows][16]
  float* delivery;        // see OuterPlan::delivery_floats()
  float* blocks;          // see OuterPlan::block_floats()
  float* row = nullptr;   // one row of an image, or the same row of two
  int64_t row_floats;
  Run* runs;
};

// Packed x of a unit: [in panel][in row][column][sample][rows of the tile]; columns are output
// columns with windows, otherwise input columns ordered by their remainder modulo the stride, so
// that the columns of one tap lie side by side. Packed g: [out panel][row][column][sample][16].
// With pairs the samples are lanes, see OuterPlan::lanes().
struct Packed {
  float* x;
  float* g;
  float* rows;                 // see OuterPlan::packed_rows()
  int64_t x_stride, g_stride;  // floats of one panel
};

Packed packed_unit(const OuterPlan& p, float* chunk, size_t index) {
  float* x = chunk + index * p.unit_floats();
  float* g = x + p.input_floats();
  return {x, g, g + p.gradient_floats(), p.input_stride(), p.gradient_stride()};
}

// Units are few where channels are many: their lines are packed in so many shares.
constexpr size_t kShares = 4;

// Calls visit(sample, line) for one share of the lines of a unit. The samples of a line follow each
// other: their numbers lie side by side, in the same lines of the cache.
template <class Visit>
void for_share(size_t share, int64_t samples, int64_t lines, Visit visit) {
  const int64_t all = samples * lines;
  const auto cut = [all](size_t s) { return all * static_cast<int64_t>(s) / int64_t{kShares}; };
  for (int64_t i = cut(share); i < cut(share + 1); ++i) visit(i % samples, i / samples);
}

// The largest magnitude that any thread has seen, as bits: NaN lies above infinity.
class Largest {
 public:
  void see(const float* values, int64_t count) {
    const uint32_t mine = simd::largest_magnitude(values, static_cast<size_t>(count));
    uint32_t known = bits_.load(std::memory_order_relaxed);
    while (mine > known && !bits_.compare_exchange_weak(known, mine, std::memory_order_relaxed)) {
    }
  }
  double value() const { return double{std::bit_cast<float>(bits_.load())}; }

 private:
  std::atomic<uint32_t> bits_ = 0;
};

// One row of an image, or with pairs the same row of two (the second may be missing), goes into
// panels of `width` channels: `count` columns from `first` on, `stride` floats apart.
void pack_lane(const OuterPlan& p, const Workspace& work, bool both, int64_t first, int64_t count,
               int64_t stride, int64_t channels, int64_t width, float* to, int64_t step,
               int64_t panel_stride) {
  const float* row = work.row + first;
  if (p.products == Products::kF32)
    return pack_rows(row, count, stride, channels, width, to, step, panel_stride);
  pack_pairs(row, both ? row + work.row_floats : nullptr, count, stride, channels, width, to, step,
             panel_stride);
}

// Calls load(sample of the unit, row in scratch) for the samples of a lane; says whether it has
// two.
template <class Load>
bool load_lane(const OuterPlan& p, const OuterUnit& u, int64_t lane, const Workspace& work,
               Load load) {
  if (p.products == Products::kF32) {
    load(lane, work.row);
    return false;
  }
  const bool both = 2 * lane + 1 < u.samples;
  load(2 * lane, work.row);
  if (both) load(2 * lane + 1, work.row + work.row_floats);
  return both;
}

void pack_input(const OuterPlan& p, const OuterUnit& u, const Source& x, int64_t group,
                size_t share, const Packed& to, const Workspace& work, Largest& largest) {
  const ConvGeometry& g = p.geometry;
  const int64_t in = g.group_in(), rows = p.in_width, wide = p.packed_columns, lanes = p.lanes(u);
  const int64_t edge = p.window ? g.padding_w * in : 0, middle = g.in.w * in;
  for_share(share, lanes, u.in_rows, [&](int64_t lane, int64_t y) {
    float* at = to.x + (y * wide * lanes + lane) * rows;
    const bool both = load_lane(p, u, lane, work, [&](int64_t n, float* row) {
      load_rows(x, {u.sample + n, (u.in_row + y) * g.in.w, g.in.w, group * in, in}, row + edge, in);
      if (p.bounded_gradient()) largest.see(row + edge, middle);
      if (!p.window) return;
      std::fill_n(row, edge, 0.0f);
      std::fill_n(row + edge + middle, edge + g.kernel_w * in, 0.0f);
    });
    if (p.window)
      return pack_lane(p, work, both, 0, g.out.w, g.stride_w * in, p.channels, rows, at,
                       lanes * rows, to.x_stride);
    const int64_t each = wide / g.stride_w;
    for (int64_t r = 0; r < std::min(g.stride_w, g.in.w); ++r)
      pack_lane(p, work, both, r * in, (g.in.w - r + g.stride_w - 1) / g.stride_w, g.stride_w * in,
                in, rows, at + r * each * lanes * rows, lanes * rows, to.x_stride);
  });
}

void pack_gradient(const OuterPlan& p, const OuterUnit& u, const GradSource& d, int64_t group,
                   size_t share, const Packed& to, const Workspace& work, Largest& largest) {
  const ConvGeometry& g = p.geometry;
  const int64_t out = g.group_out(), lanes = p.lanes(u);
  for_share(share, lanes, u.out_rows, [&](int64_t lane, int64_t y) {
    const bool both = load_lane(p, u, lane, work, [&](int64_t n, float* row) {
      load_grad_rows(d, {u.sample + n, (u.out_row + y) * g.out.w, g.out.w, group * out, out}, row,
                     out);
      if (p.bounded_gradient()) largest.see(row, g.out.w * out);
      if (p.unit_rows == 0) return;
      pair_channels(row, g.out.w, out,
                    to.rows + (n * u.out_rows + y) * g.out.w * units(p.products, out));
    });
    pack_lane(p, work, both, 0, g.out.w, out, out, kPanel,
              to.g + (y * g.out.w * lanes + lane) * kPanel, lanes * kPanel, to.g_stride);
  });
}

// Calls load(range, row in the unit) for a share of the positions of a unit, then fills up the
// rows.
template <class Load>
void load_share(const OuterPlan& p, const OuterUnit& u, const Shape& map, bool alike, size_t share,
                float* to, int64_t step, Largest& largest, Load load) {
  const auto cut = [&](size_t s) {
    return u.samples * u.out_rows * static_cast<int64_t>(s) / int64_t{kShares} * map.w;
  };
  const int64_t begin = cut(share), end = cut(share + 1);
  for_unit_ranges(u, map, alike, begin, end,
                  [&](const RowRange& range, int64_t i) { load(range, to + i * step); });
  for (int64_t i = begin; step > map.c && i < end; ++i)
    std::fill_n(to + i * step + map.c, step - map.c, 0.0f);
  if (p.bounded_gradient()) largest.see(to + begin * step, (end - begin) * step);
}

// Both operands of a 1x1 convolution, see Note [Units as rows].
void load_rows_of(const OuterPlan& p, const OuterUnit& u, const Source& x, const GradSource& d,
                  size_t share, const Packed& to, Largest& largest_x, Largest& largest_g) {
  const int64_t x_step = p.input_step(), g_step = p.gradient_step();
  load_share(p, u, p.geometry.in, x.alike(), share, to.x, x_step, largest_x,
             [&](const RowRange& range, float* rows) { load_rows(x, range, rows, x_step); });
  load_share(p, u, p.geometry.out, d.alike(), share, to.g, g_step, largest_g,
             [&](const RowRange& range, float* rows) { load_grad_rows(d, range, rows, g_step); });
}

// Calls pack(first sample, samples, line, first column, columns) for a share of the lines of a unit
// and of its samples, 32 at a time, a piece of a line after the other.
template <class Pack>
void for_block_pieces(const OuterPlan& p, const OuterUnit& u, size_t share, int64_t lines,
                      int64_t columns, Pack pack) {
  for_share(share, p.lanes(u) / kBlockUnits, lines, [&](int64_t block, int64_t line) {
    const int64_t first = block * kBlockDepth, samples = std::min(kBlockDepth, u.samples - first);
    for (int64_t column = 0; column < columns; column += p.block_columns)
      pack(first, samples, line, column, std::min(p.block_columns, columns - column));
  });
}

// The blocks of a pixel, see Note [Units as blocks]: `line` and `column` of a tensor whose lines
// are `wide` columns as packed.
int64_t block_at(const OuterPlan& p, const OuterUnit& u, int64_t first_sample, int64_t line,
                 int64_t wide, int64_t column) {
  return ((line * wide + column) * p.lanes(u) / kBlockUnits + first_sample / kBlockDepth) *
         kBlockFloats;
}

void pack_input_blocks(const OuterPlan& p, const OuterUnit& u, const Source& x, int64_t group,
                       size_t share, const Packed& to, const Workspace& work, Largest& largest) {
  const ConvGeometry& g = p.geometry;
  const int64_t in = g.group_in(), wide = p.packed_columns, each = wide / g.stride_w;
  const int64_t columns = p.window ? g.out.w : g.in.w;
  for_block_pieces(
      p, u, share, u.in_rows, columns,
      [&](int64_t first, int64_t samples, int64_t y, int64_t column, int64_t count) {
        // Input columns [begin, end) of which those from `left` on lie before the image.
        const int64_t begin = p.window ? column * g.stride_w - g.padding_w : column;
        const int64_t end = p.window ? (column + count - 1) * g.stride_w - g.padding_w + g.kernel_w
                                     : column + count;
        const int64_t real = std::clamp<int64_t>(begin, 0, g.in.w);
        const int64_t real_end = std::clamp<int64_t>(end, real, g.in.w);
        const int64_t stride = (end - begin) * in;
        for (int64_t n = 0; n < samples; ++n) {
          float* const row = work.blocks + n * stride;
          std::fill_n(row, (real - begin) * in, 0.0f);
          float* const middle = row + (real - begin) * in;
          if (real_end > real)
            load_rows(x,
                      {u.sample + first + n, (u.in_row + y) * g.in.w + real, real_end - real,
                       group * in, in},
                      middle, in);
          if (p.bounded_gradient()) largest.see(middle, (real_end - real) * in);
          std::fill(middle + (real_end - real) * in, row + stride, 0.0f);
        }
        for (int64_t i = 0; i < count; ++i) {
          const int64_t at =
              p.window ? column + i : (column + i) % g.stride_w * each + (column + i) / g.stride_w;
          pack_block(work.blocks + (p.window ? i * g.stride_w : i) * in, samples, stride,
                     p.channels, true, to.x + block_at(p, u, first, y, wide, at), to.x_stride);
        }
      });
}

void pack_gradient_blocks(const OuterPlan& p, const OuterUnit& u, const GradSource& d,
                          int64_t group, size_t share, const Packed& to, const Workspace& work,
                          Largest& largest) {
  const ConvGeometry& g = p.geometry;
  const int64_t out = g.group_out();
  for_block_pieces(
      p, u, share, u.out_rows, g.out.w,
      [&](int64_t first, int64_t samples, int64_t y, int64_t column, int64_t count) {
        const int64_t stride = count * out;
        for (int64_t n = 0; n < samples; ++n) {
          float* const row = work.blocks + n * stride;
          load_grad_rows(
              d,
              {u.sample + first + n, (u.out_row + y) * g.out.w + column, count, group * out, out},
              row, out);
          if (p.bounded_gradient()) largest.see(row, stride);
        }
        for (int64_t i = 0; i < count; ++i)
          pack_block(work.blocks + i * out, samples, stride, out, false,
                     to.g + block_at(p, u, first, y, g.out.w, column + i), to.g_stride);
      });
}

// One operand of a flat plan: load(range, rows) fills rows of fp32, keep(rows, first, count) sees
// them.
template <class Load, class Keep>
void pack_flat(const OuterPlan& p, const OuterUnit& u, const Shape& map, bool alike, size_t share,
               bool turned, float* to, int64_t panel_stride, const Workspace& work,
               Largest& largest, Load load, Keep keep) {
  const int64_t positions = u.samples * u.out_rows * map.w;
  const int64_t all = p.flat_positions(u) / kBlockUnits;
  const auto cut = [all](size_t s) { return all * static_cast<int64_t>(s) / int64_t{kShares}; };
  for (int64_t block = cut(share); block < cut(share + 1);) {
    const int64_t blocks = std::min(p.block_columns, cut(share + 1) - block);
    const int64_t begin = block * kBlockDepth;
    const int64_t end = std::min(positions, begin + blocks * kBlockDepth);
    for_unit_ranges(u, map, alike, begin, end, [&](const RowRange& range, int64_t i) {
      load(range, work.blocks + (i - begin) * map.c);
    });
    if (p.bounded_gradient()) largest.see(work.blocks, (end - begin) * map.c);
    keep(work.blocks, begin, end - begin);
    for (int64_t i = 0; i < blocks; ++i)
      pack_block(work.blocks + i * kBlockDepth * map.c,
                 std::min(kBlockDepth, end - begin - i * kBlockDepth), map.c, map.c, turned,
                 to + (block + i) * kBlockFloats, panel_stride);
    block += blocks;
  }
}

void pack_flat_unit(const OuterPlan& p, const OuterUnit& u, const Source& x, const GradSource& d,
                    size_t share, const Packed& to, const Workspace& work, Largest& largest_x,
                    Largest& largest_g) {
  const Shape &in = p.geometry.in, &out = p.geometry.out;
  pack_flat(
      p, u, in, x.alike(), share, true, to.x, to.x_stride, work, largest_x,
      [&](const RowRange& range, float* rows) { load_rows(x, range, rows, in.c); },
      [](const float*, int64_t, int64_t) {});
  pack_flat(
      p, u, out, d.alike(), share, false, to.g, to.g_stride, work, largest_g,
      [&](const RowRange& range, float* rows) { load_grad_rows(d, range, rows, out.c); },
      [&](const float* rows, int64_t first, int64_t count) {
        if (p.unit_rows > 0)
          pair_channels(rows, count, out.c, to.rows + first * units(p.products, out.c));
      });
}

// The positions of a unit that the taps (ky, columns) multiply; its first one is counted as `base`.
size_t list_runs(const OuterPlan& p, const OuterUnit& u, int64_t base, int64_t ky,
                 const TapColumns& columns, Run* runs) {
  const ConvGeometry& g = p.geometry;
  const int64_t wide = p.packed_columns, lanes = p.lanes(u);
  const auto run = [base](int64_t x, int64_t of_g, int64_t length) {
    return Run{static_cast<int32_t>(base + x), static_cast<int32_t>(base + of_g),
               static_cast<int32_t>(length)};
  };
  if (p.flat()) {
    *runs = run(0, 0, p.flat_positions(u));
    return 1;
  }
  if (columns.last <= columns.first) return 0;
  size_t count = 0;
  for (int64_t y = 0; y < u.out_rows; ++y) {
    const int64_t in_y = (u.out_row + y) * g.stride_h + ky - g.padding_h;
    if (in_y < 0 || in_y >= g.in.h) continue;
    runs[count++] =
        run(((in_y - u.in_row) * wide + columns.at) * lanes, (y * g.out.w + columns.first) * lanes,
            (columns.last - columns.first) * lanes);
  }
  return count;
}

// `shared`: by the taps that OuterPlan::sums_of_tap says.
void load_sums(const OuterPlan& p, const OuterJob& job, const float* from, bool shared,
               float* sums) {
  const int64_t tap_floats = job.tap_floats();
  for (int64_t tap = 0; tap < p.taps; ++tap) {
    float* to = sums + tap * tap_floats;
    if (shared && p.sums_of_tap[static_cast<size_t>(tap)] != tap) continue;
    if (from == nullptr) {
      std::fill_n(to, tap_floats, 0.0f);
      continue;
    }
    std::copy_n(from + job.begin + tap * p.channels * kPanel, job.rows * kPanel, to);
    std::fill(to + job.rows * kPanel, to + tap_floats, 0.0f);
  }
}

void store_sums(const OuterPlan& p, const OuterJob& job, const float* sums, float* to) {
  const int64_t tap_floats = job.tap_floats();
  for (int64_t tap = 0; tap < p.taps; ++tap)
    std::copy_n(sums + tap * tap_floats, job.rows * kPanel,
                to + job.begin + tap * p.channels * kPanel);
}

// `index`: of the job, over all groups.
void deliver(const OuterPlan& p, const OuterJob& job, size_t index, bool shared, const float* sums,
             float* delivery, GradConsumer& consumer) {
  if (p.channels % 2 == 0) {
    const auto of_tap = [&](int64_t tap) {
      return sums + (shared ? p.sums_of_tap[static_cast<size_t>(tap)] : tap) * job.tap_floats();
    };
    return deliver_taps_of(job, index, p.taps, p.channels, of_tap, consumer);
  }
  const int64_t whole = p.geometry.panel_floats(), used = p.taps * p.channels * kPanel;
  for (int64_t tap = 0; tap < p.taps; ++tap)
    std::copy_n(sums + tap * job.tap_floats(), job.rows * kPanel,
                delivery + tap * p.channels * kPanel);
  std::fill(delivery + used, delivery + whole, 0.0f);
  consumer.consume(index, job.begin, whole, delivery);
}

// Jobs of neighbouring out panels and the same in panels.
struct JobGroup {
  JobGroup(const OuterPlan& p, size_t index) {
    stride = p.jobs() / static_cast<size_t>(p.out_panels);
    const auto group = static_cast<int64_t>(index / stride);
    const int64_t out = p.outs().begin(group);
    first = static_cast<size_t>(out) * stride + index % stride;
    count = static_cast<size_t>(p.outs().begin(group + 1) - out);
  }
  static size_t all(const OuterPlan& p) {
    return p.jobs() / static_cast<size_t>(p.out_panels) * static_cast<size_t>(p.outs().count());
  }
  size_t job(size_t i) const { return first + i * stride; }

  size_t first, stride, count;
};

// Adds what units [first, first + count) contribute to `jobs` jobs from `job` on, whose sums lie
// `stride` apart. `packed`: the first unit, the others follow.
void multiply(const OuterPlan& p, size_t first, size_t count, const Packed& packed,
              const OuterJob& job, size_t jobs, Run* runs, float* sums, int64_t stride) {
  const auto tile = p.blocks                        ? block_outer_tile
                    : p.products == Products::kBf16 ? pair_outer_tile
                                                    : outer_tile;
  const auto unit_floats = static_cast<int64_t>(p.unit_floats());
  // Blocks are multiplied fast beside fetching sums and putting them away: once for all units.
  const size_t together = p.blocks ? count : 1;
  for (size_t i = 0; i < count; i += together) {
    const int64_t at = static_cast<int64_t>(i) * unit_floats;
    const OuterPanels x{packed.x + at + job.first_panel * packed.x_stride, p.input_step(),
                        packed.x_stride, job.panels};
    const OuterPanels g{packed.g + at + job.out_panel * packed.g_stride, p.gradient_step(),
                        packed.g_stride, static_cast<int64_t>(jobs)};
    if (p.as_rows) {
      const OuterUnit& unit = p.units[first + i];
      const int64_t rows = unit.samples * unit.out_rows * p.geometry.out.w;
      for (int64_t row = 0; row < rows; row += kRowsAtOnce) {
        const auto begin = static_cast<int32_t>(row);
        const Run some{begin, begin, static_cast<int32_t>(std::min(kRowsAtOnce, rows - row))};
        tile(x, g, &some, 1, sums, stride);
      }
      continue;
    }
    float* tap_sums = sums;
    for (int64_t ky = 0; ky < p.geometry.kernel_h; ++ky) {
      for (const TapColumns& columns : p.tap_columns) {
        size_t run_count = 0;
        for (size_t u = 0; u < together; ++u)
          run_count +=
              list_runs(p, p.units[first + i + u], static_cast<int64_t>(u) * unit_floats / kPanel,
                        ky, columns, runs + run_count);
        if (run_count > 0) tile(x, g, runs, run_count, tap_sums, stride);
        tap_sums += job.tap_floats();
      }
    }
  }
}

// The part of a unit's slot that belongs to a job.
float* slot_of(const OuterPlan& p, float* slots, size_t unit, size_t job) {
  return slots + unit * p.slot_floats() + job * static_cast<size_t>(p.job_sums());
}

// No larger is any element of dW or of the sums on the way to it, but for rounding. max(NaN, 1) is
// NaN, max(1, NaN) would be 1. Rounding to bf16 adds up to 2^-8 to each operand, and makes an
// infinity of the largest fp32 numbers.
float bound(const OuterPlan& p, const Largest& x, const Largest& g) {
  const bool pairs = p.products == Products::kBf16;
  const double most = numeric::overflow_threshold(numeric::Format::kBf16);
  const bool rounds_up = pairs && (x.value() >= most || g.value() >= most);
  const double rounding = rounds_up ? HUGE_VAL : pairs ? kTwoRoundings : 1;
  const double terms = rounding * static_cast<double>(p.samples * p.geometry.out.pixels());
  return static_cast<float>(terms * g.value() * std::max(x.value(), 1.0));
}

}  // namespace

void conv_backward_weights(const OuterPlan& p, const Source& x, const GradSource& d,
                           const float* initial, float* partial, GradConsumer& consumer,
                           std::byte* scratch, base::ThreadPool& pool,
                           ChunkReader* reader) noexcept {
  auto* chunk = reinterpret_cast<float*>(scratch);  // packed units; apart: their slots
  std::byte* workers = scratch + p.shared_bytes();
  Largest largest_x, largest_g;
  for (int64_t group = 0; group < p.geometry.groups; ++group) {
    for (size_t c = 0; c < p.chunks(); ++c) {
      const size_t first = c * p.chunk_units;
      const size_t count = std::min(p.chunk_units, p.units.size() - first);
      const auto pack = [&](size_t i, size_t share, const Packed& packed, const Workspace& work) {
        const OuterUnit& unit = p.units[first + i];
        if (p.as_rows) return load_rows_of(p, unit, x, d, share, packed, largest_x, largest_g);
        if (p.flat())
          return pack_flat_unit(p, unit, x, d, share, packed, work, largest_x, largest_g);
        if (p.blocks) {
          pack_input_blocks(p, unit, x, group, share, packed, work, largest_x);
          return pack_gradient_blocks(p, unit, d, group, share, packed, work, largest_g);
        }
        pack_input(p, unit, x, group, share, packed, work, largest_x);
        pack_gradient(p, unit, d, group, share, packed, work, largest_g);
      };
      if (p.apart) {
        pool.run(count, [&](size_t i, size_t worker) {
          const Workspace work(p, workers + worker * p.worker_bytes());
          const Packed packed = packed_unit(p, work.unit, 0);
          for (size_t share = 0; share < kShares; ++share) pack(i, share, packed, work);
          if (reader != nullptr) reader->read_unit(work.unit, first + i, worker);
          std::fill_n(slot_of(p, chunk, i, 0), p.slot_floats(), 0.0f);
          for (size_t index = 0; index < JobGroup::all(p); ++index) {
            const JobGroup jobs(p, index);
            multiply(p, first + i, 1, packed, OuterJob(p, jobs.first, group), jobs.count, work.runs,
                     slot_of(p, chunk, i, jobs.first),
                     static_cast<int64_t>(jobs.stride) * p.job_sums());
          }
        });
      } else {
        pool.run(count * kShares, [&](size_t i, size_t worker) {
          const Workspace work(p, workers + worker * p.worker_bytes());
          pack(i / kShares, i % kShares, packed_unit(p, chunk, i / kShares), work);
        });
      }
      if (p.bounded_gradient() && initial == nullptr)
        consumer.expect(bound(p, largest_x, largest_g));
      if (!p.apart && reader != nullptr) reader->read(chunk, first, count);
      const float* from = c == 0 ? initial : partial;
      // Sums that go on, are added up or lie whole somewhere are those of all taps.
      const bool shared = from == nullptr && !p.whole_gradient() && !p.apart && p.channels % 2 == 0;
      pool.run(JobGroup::all(p), [&](size_t index, size_t worker) {
        const Workspace work(p, workers + worker * p.worker_bytes());
        const JobGroup jobs(p, index);
        const auto sums_of = [&](size_t v) {
          return work.sums + static_cast<int64_t>(v) * p.job_sums();
        };
        for (size_t v = 0; v < jobs.count; ++v) {
          const OuterJob job(p, jobs.job(v), group);
          load_sums(p, job, from, shared, sums_of(v));
          for (size_t i = 0; p.apart && i < count; ++i)
            add_floats(slot_of(p, chunk, i, jobs.job(v)), p.taps * job.tap_floats(), sums_of(v));
        }
        if (!p.apart)
          multiply(p, first, count, packed_unit(p, chunk, 0), OuterJob(p, jobs.first, group),
                   jobs.count, work.runs, work.sums, p.job_sums());
        for (size_t v = 0; v < jobs.count; ++v) {
          const OuterJob job(p, jobs.job(v), group);
          if (c + 1 < p.chunks())
            store_sums(p, job, sums_of(v), partial);
          else
            deliver(p, job, static_cast<size_t>(group) * p.jobs() + jobs.job(v), shared, sums_of(v),
                    work.delivery, consumer);
        }
      });
    }
  }
}

}  // namespace tri::ops
