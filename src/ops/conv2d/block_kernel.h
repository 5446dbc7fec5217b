#pragma once
// Room: ops. The register kernels of pair_kernel.h on processors that multiply whole blocks of bf16
// (AMX, Note [AVX3_AMX] in simd/target.h).
//
// Note [Blocks]. One instruction multiplies 16 rows of 16 units by 16 units of 16 columns (Note
// [Units] in pair_kernel.h) and adds the 16 x 16 sums to what is there. So sums run over blocks of
// 16 units, of which the last one of a row, of a tap or of a run may be filled up with zeros:
//     sum += (first numbers of the 16 pairs, in turn) + (second numbers of the 16 pairs, in turn)
// each product exact, each addition rounded, subnormal numbers as zeros. How many rows and panels
// are multiplied at once changes no bit.
#include <cstddef>
#include <cstdint>

#include "ops/conv2d/panel_kernel.h"
#include "ops/rows/rows.h"

namespace tri::ops {

inline constexpr int64_t kBlockUnits = 16;
// Numbers of one row or column of a block.
inline constexpr int64_t kBlockDepth = 2 * kBlockUnits;
inline constexpr int64_t kBlockFloats = kBlockUnits * kPanel;

// As pair_tile() and pair_tile_rounded(), of up to kMostPanels panels. Blocks begin where a row of
// weights does not follow the one before.
void block_tile(const PanelTile& tile, int64_t panels, int64_t panel_units) noexcept;
StoreCounts block_tile_rounded(const PanelTile& tile, uint16_t* out, int64_t channels,
                               int64_t panels, int64_t panel_units) noexcept;

// As outer_tile(): positions are pairs, 16 rows a panel of x. Both operands are blocks of 16
// positions, which runs do not cut: those of g lie as [position][16], those of x turned round, as
// [16][position].
void block_outer_tile(const OuterPanels& x, const OuterPanels& g, const Run* runs, size_t run_count,
                      float* sums, int64_t stride) noexcept;

// Packs `count` (at most 32) rows for block_outer_tile(), rounded: row i and the next one are a
// position, missing ones are zeros. Panel q of 16 channels goes to dst + q * panel_stride; the last
// one is filled up with zeros. `turned`: as operand x.
void pack_block(const float* src, int64_t count, int64_t src_stride, int64_t channels, bool turned,
                float* dst, int64_t panel_stride) noexcept;

// What a block adds to one sum.
namespace reference {
float block_sum(const uint32_t* a, int64_t a_step, const uint32_t* b, int64_t b_step,
                float sum) noexcept;
}

}  // namespace tri::ops
