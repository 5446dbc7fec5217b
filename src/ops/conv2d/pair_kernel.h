#pragma once
// Room: ops. The register kernels of panel_kernel.h for operands in bf16, on processors that
// multiply pairs of them (Notes [AVX3_BF16] and [AVX3_AMX] in simd/target.h).
//
// Note [Units]. Kernels and lists count in units of four bytes. A unit is one fp32 number, or a
// pair of bf16 numbers, the first in the low half, whose two products go into the same sum:
// neighbouring channels where rows meet panels, the same pixel of two samples where dW is made. So
// strides, segments, runs and scratch look alike for both, and half as many units are multiplied.
//
// Both operands are rounded to bf16, their products are exact, sums are fp32: of a pair first the
// second product is added, then the first, each with one rounding. Subnormal numbers count as zero.
// Where the processor multiplies whole blocks, pair_tile() and pair_tile_rounded() are those of
// block_kernel.h, with sums in the order of Note [Blocks].
#include <cstddef>
#include <cstdint>

#include "ops/conv2d/panel_kernel.h"
#include "ops/rows/rows.h"
#include "simd/target.h"

namespace tri::ops {

// What is multiplied. Sums are fp32 in either case.
enum class Products : uint8_t { kF32, kBf16 };

constexpr int64_t units(Products products, int64_t numbers) {
  return products == Products::kBf16 ? (numbers + 1) / 2 : numbers;
}

// The most panels that the register kernel of these products takes; blocks (block_kernel.h) take
// many, so that what is gathered of the rows is used often.
inline int64_t most_panels(Products products) {
  if (products == Products::kF32) return most_panels();
  return simd::multiplies_blocks() ? kMostPanels : 2;
}

// Whether results of pairs are what the tensor stores, so that pair_tile_rounded() can put them
// there.
inline bool takes_rounded(Products products, const Sink& sink) {
  return products == Products::kBf16 && sink.format == Format::kBf16 && !sink.accumulate &&
         sink.scale == 1.0f;
}

// kBf16 if the weights of a layer work in bf16, or in 8 bits, all numbers of which are bf16 numbers
// too, and the active target multiplies it.
Products products_for(numeric::Format working);

// panel_tile() of one or two panels.
void pair_tile(const PanelTile& tile, int64_t panels, int64_t panel_units) noexcept;

// The same with results in bf16, where they belong: row `r` at out[rows[r].out], tile.out is not
// used. `channels`: of these panels, the last of which may be filled in part. Bits and counts are
// those of store_rows().
StoreCounts pair_tile_rounded(const PanelTile& tile, uint16_t* out, int64_t channels,
                              int64_t panels, int64_t panel_units) noexcept;

// outer_tile() of pairs of positions. Fetches a number of x once for two panels of g: products that
// read it from memory each time would wait for it (1.3 times as long, Zen 4).
void pair_outer_tile(const OuterPanels& x, const OuterPanels& g, const Run* runs, size_t run_count,
                     float* sums, int64_t stride) noexcept;

// pack_rows() of two samples: a unit holds the number of `first` and that of `second`; null: zeros.
void pack_pairs(const float* first, const float* second, int64_t rows, int64_t src_stride,
                int64_t channels, int64_t width, float* dst, int64_t step,
                int64_t panel_stride) noexcept;

// Rows of 16 weights as half as many rows of pairs. fp32 numbers must be bf16 numbers.
void pair_rows(const float* src, int64_t rows, float* dst) noexcept;
void pair_rows(const uint16_t* bf16, int64_t rows, float* dst) noexcept;

// pair_rows() of 16 x 16 weights turned round: number 2 i and 2 i + 1 of row r, which lie side by
// side, become unit r of row i. `columns`: so many numbers of a row count, the others are zeros.
void turn_pairs(const uint16_t* bf16, int64_t columns, float* dst) noexcept;

// dst[i] = src[i] rounded to the nearest bf16, ties to even; subnormal numbers become zero.
void narrow(const float* src, int64_t count, uint16_t* dst) noexcept;

// What the two tiles mean, one operation after the other.
namespace reference {
float pair_sum(uint32_t a, uint32_t b, float sum) noexcept;
}

}  // namespace tri::ops
