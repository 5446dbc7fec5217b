#pragma once
// Room: ops. The two register kernels that all dense convolutions and linear layers run on. Both
// know only fp32 rows in scratch and lists of offsets; formats, padding, strides and groups have
// been settled by those who built the lists.
//
// A panel is 16 output channels: weights lie as [row of the panel][16], so that one broadcast input
// value meets 16 weights in two AVX2 registers. Six rows x 16 channels fill 12 of 16 registers.
//
// Note [Panels together]. On AVX-512 a panel is one register. An instruction there multiplies as
// fast as L1 hands over operands, so a broadcast number should meet several panels: a tile of 8
// rows x 1 panel runs at half of the peak (Intel, two multiplications a cycle; 0.8 while the core
// is not shared), 8 x 3 and 6 x 4 at 0.75 (0.97). Weights stream from L2 and are asked for early.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/ceil_div.h"
#include "numeric/format.h"

namespace tri::ops {

inline constexpr int64_t kPanel = 16;

// k consecutive input values meet k consecutive rows of the panel; offsets in floats, rows.
struct Segment {
  int32_t x;
  int32_t w;
  int32_t k;
};

// One output row: where its input starts and where its 16 results go, in floats; with results in
// bf16 (pair_tile_rounded()) in those.
struct RowRef {
  int32_t x;
  int32_t out;
};

// Rows that touch the same taps, and these taps. Half-open ranges.
struct RowClass {
  int32_t row_begin, row_end;
  int32_t segment_begin, segment_end;
};

struct PanelTile {
  const float* x;
  const float* panel;  // (rows, 16)
  const float* bias;   // (16), or null
  float* out;
  const RowRef* rows;
  const Segment* segments;
  const RowClass* classes;
  size_t class_count;
};

// Neighbouring panels in groups of at most `most`, as even as can be: 10 as 3, 3, 4.
struct PanelGroups {
  int64_t panels, most;

  int64_t count() const { return base::ceil_div(panels, most); }
  int64_t begin(int64_t group) const { return group * panels / count(); }
  int64_t largest() const { return base::ceil_div(panels, std::max<int64_t>(1, count())); }
};

// The most panels that panel_tile() takes: 4 on AVX-512, 1 elsewhere. Other kernels take up to
// kMostPanels.
inline constexpr int kMostPanels = 8;
int64_t most_panels() noexcept;
// For each of `panels` panels that lie `panel_stride` floats apart, whose biases and results follow
// each other: out[row][0..15] = bias + sum over the row's segments, in their order, one chain per
// result.
void panel_tile(const PanelTile& tile, int64_t panels, int64_t panel_stride) noexcept;

// `length` consecutive positions of both operands; offsets in positions.
struct Run {
  int32_t x;
  int32_t g;
  int32_t length;
};

// How many input channels one tile of the outer product holds: 6 on AVX2.
int64_t outer_rows() noexcept;
inline constexpr int kAvx512OuterRows = 8;
// Work is best handed out in so many panels of g, which then share what is read of x: 3 on AVX-512.
int64_t most_outer_panels() noexcept;
// Floats between neighbouring panels or frequencies in scratch, whose sizes are powers of two more
// often than not: without them one position of all would lie in the same set of L1.
inline constexpr int64_t kSkew = 16;

// Panels of one operand, each (position, width): packed, or columns of rows.
struct OuterPanels {
  const float* first;
  int64_t step;    // floats from one position to the next
  int64_t stride;  // floats from one panel to the next
  int64_t count;
};

// sums[panel of g][panel of x][r][c] += sum over the runs of x[position][r] * g[position][c]; the
// sums of two panels are (outer_rows(), 16), those of all x follow each other, and those of the
// next g begin `stride` floats later.
void outer_tile(const OuterPanels& x, const OuterPanels& g, const Run* runs, size_t run_count,
                float* sums, int64_t stride) noexcept;

// Packs rows for outer_tile: channel c of row i goes to
// dst[(c / width) * panel_stride + i * step + c % width]; the last panel is filled up with zeros.
// width is outer_rows() or 16; strides in floats.
void pack_rows(const float* src, int64_t rows, int64_t src_stride, int64_t channels, int64_t width,
               float* dst, int64_t step, int64_t panel_stride) noexcept;

// dst[c][r] = src[r][c] for a 16 x 16 block, strides in floats.
void transpose_block(const float* src, int64_t src_stride, float* dst, int64_t dst_stride) noexcept;
// The same from fp32, bf16 or fp16; strides in elements.
void transpose_block(numeric::Format format, const void* src, int64_t src_stride, float* dst,
                     int64_t dst_stride) noexcept;

}  // namespace tri::ops
