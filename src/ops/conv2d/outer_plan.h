#pragma once
// Room: ops. Backward to the weights: dW[tap][in][out] is a sum of outer products over positions.
// Note [Order of dW]. The samples are cut, at ghost-batch boundaries, into units: a few samples, or
// a strip of rows of one. Every sum runs over the units in stream order, each one continuing from
// the value before it. So the result does not depend on how many units are packed at a time, on the
// threads, or on whether the batch came whole or in micro-batches cut at ghost boundaries.
//
// Note [Units apart]. A chunk of units is packed by all threads, then multiplied by all threads,
// each of which owns a part of dW. Where maps are large and dW is small this is many short phases,
// and most of what a thread multiplies lies in another one's cache. There a thread packs and
// multiplies a unit alone; the sums of each unit begin at zero in a slot of its own, and the slots
// are added in stream order. The shape alone decides.
//
// Note [Units as rows]. A 1x1 convolution of stride 1 multiplies the same positions of x and g, and
// with products of fp32 the kernel reads columns of rows as fast as packed panels, if rows lie an
// odd number of cache lines apart and few are taken at a time: their lines must meet in L1. So
// nothing is packed: both operands are loaded as [sample][row][column][channels], padded with
// zeros, and dX is made of the same rows.
//
// Note [Units as blocks]. Where the processor multiplies blocks (block_kernel.h) a position of both
// operands is one of 16 that are multiplied at once: a pixel of 32 samples, zeros where there are
// fewer, so that taps shift whole blocks. With very few samples most of a block would be zeros, and
// pairs are multiplied one by one as elsewhere. A 1x1 convolution of stride 1 takes 32 pixels
// instead that follow each other.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ceil_div.h"
#include "ops/conv2d/block_kernel.h"
#include "ops/conv2d/conv_geometry.h"
#include "ops/conv2d/pair_kernel.h"
#include "ops/rows/rows.h"

namespace tri::ops {

// Floats from one row of such an operand to the next; what fits two lines is all in L1.
inline int64_t row_step(int64_t floats) {
  const int64_t lines = base::ceil_div(floats, 16);
  return 16 * (lines > 2 ? lines | 1 : lines);
}
// A line of each of so many rows of x and of g leaves half of L1 to others.
inline constexpr int64_t kRowsAtOnce = 128;

struct OuterUnit {
  int64_t sample, samples;    // of the batch
  int64_t out_row, out_rows;  // strip of the output
  int64_t in_row, in_rows;    // the real rows of the input that the strip touches
};

// The output columns [first, last) in which a column of taps meets the input, and where the input
// of the first one lies among the packed columns.
struct TapColumns {
  int64_t first, last, at;
};

struct OuterPlan {
  // `ghost`: samples of a ghost batch, 0 for the whole batch. `keep_rows`: pairs of samples are of
  // no use to dX; packed beside them are the rows of the gradient as they come, see packed_rows().
  OuterPlan(const ConvGeometry& geometry, int64_t samples, int64_t ghost,
            Products products = Products::kF32, bool keep_rows = false);

  ConvGeometry geometry;
  int64_t samples;
  Products products;
  // A window packs the kernel_w neighbours of an output column as one row of kernel_w * in
  // channels: full tiles where the input has fewer channels than a tile has rows.
  bool window;
  bool as_rows;      // see Note [Units as rows]
  bool blocks;       // see Note [Units as blocks]
  int64_t channels;  // rows of one tap as packed: in channels, or kernel_w times that
  int64_t taps;      // taps as packed: all, or kernel_h
  int64_t in_width;  // channels of an in panel: outer_rows(), with blocks 16
  int64_t in_panels;
  int64_t out_panels;                   // of 16
  int64_t job_panels;                   // in_panels that one job works on
  int64_t packed_columns;               // of a row of x
  std::vector<TapColumns> tap_columns;  // of taps beside each other; one with windows
  // The tap whose sums are those of each tap: its own, but that of the first one for all that meet
  // padding only (eight of nine on a map of one pixel).
  std::vector<int64_t> sums_of_tap;
  std::vector<OuterUnit> units;
  bool apart;              // see Note [Units apart]
  size_t chunk_units;      // packed at a time; apart: summed before they are added
  int64_t unit_x, unit_g;  // the most positions of one unit in packed x and packed g
  int64_t unit_rows;       // units of its rows, see packed_rows(); 0: they are not kept
  int64_t block_columns;   // with blocks: columns whose rows of 32 samples are loaded together

  // Blocks of pixels that follow each other, not of samples.
  bool flat() const { return blocks && geometry.pointwise(); }
  // Samples of a unit as they lie packed: with pairs two side by side, the last one beside zeros.
  int64_t lanes(const OuterUnit& unit) const {
    if (blocks) return base::ceil_div(unit.samples, kBlockDepth) * kBlockUnits;
    return products == Products::kBf16 ? (unit.samples + 1) / 2 : unit.samples;
  }
  // Positions of a unit of a flat plan, in whole blocks.
  int64_t flat_positions(const OuterUnit& unit) const {
    return base::ceil_div(unit.samples * unit.out_rows * geometry.out.w, kBlockDepth) * kBlockUnits;
  }

  // Jobs of neighbouring out panels that a thread works on together.
  PanelGroups outs() const {
    return {out_panels, products == Products::kBf16 ? 2 : most_outer_panels()};
  }
  int64_t outs_at_once() const { return outs().largest(); }
  int64_t job_sums() const { return taps * job_panels * in_width * kPanel; }  // the most of one

  size_t chunks() const { return (units.size() + chunk_units - 1) / chunk_units; }
  size_t jobs() const;  // of one chunk and group
  // With one chunk a finished part of dW goes straight to its consumer and dW never exists whole.
  bool whole_gradient() const { return chunks() > 1; }
  // All operands lie packed before the first part of dW is made.
  bool bounded_gradient() const { return chunks() == 1 && geometry.groups == 1; }

  size_t parts() const;  // in which the gradient is delivered
  size_t unit_floats() const;
  size_t slot_floats() const;  // [job][tap][in panel of the job][rows][16]
  // Room for a part of dW without the padding of its sums; an even number of rows has none.
  int64_t delivery_floats() const { return channels % 2 == 0 ? 0 : geometry.panel_floats(); }
  int64_t block_floats() const;  // rows of block_columns of 32 samples, before they are packed
  size_t shared_bytes() const;   // packed chunk; apart: its slots
  size_t worker_bytes() const;

  // Of unit `index` of a packed chunk: [out panel][row][column][sample][16], panels `stride` and
  // positions `step` floats apart, or rows; before it x, likewise.
  const float* packed_gradient(const float* chunk, size_t index) const;
  int64_t input_step() const { return as_rows ? row_step(in_panels * in_width) : in_width; }
  int64_t input_stride() const { return as_rows ? in_width : unit_x * in_width + kSkew; }
  int64_t input_floats() const {
    return as_rows ? unit_x * input_step() : in_panels * input_stride();
  }
  int64_t gradient_step() const { return as_rows ? row_step(out_panels * kPanel) : kPanel; }
  int64_t gradient_stride() const { return as_rows ? kPanel : unit_g * kPanel + kSkew; }
  int64_t gradient_floats() const {
    return as_rows ? unit_g * gradient_step() : out_panels * gradient_stride();
  }
  // [sample][row][column][output channels] of the gradient, in pairs of channels.
  const float* packed_rows(const float* chunk, size_t index) const {
    return packed_gradient(chunk, index) + gradient_floats();
  }
};

// Calls body(range, first position) for positions [begin, end) of a unit, counted sample by sample.
// `across`: where maps are whole, which then lie one after the other, samples are not told apart; a
// map may be a single pixel.
template <class Body>
void for_unit_ranges(const OuterUnit& unit, const Shape& map, bool across, int64_t begin,
                     int64_t end, Body body) {
  const int64_t pixels = unit.out_rows * map.w, first = unit.out_row * map.w;
  const bool together = across && pixels == map.pixels();
  for (int64_t i = begin; i < end;) {
    const int64_t count = together ? end - i : std::min(end - i, pixels - i % pixels);
    body(RowRange{unit.sample + i / pixels, first + i % pixels, count, 0, map.c}, i);
    i += count;
  }
}

}  // namespace tri::ops
