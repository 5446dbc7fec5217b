#pragma once
// Room: ops. y = x1 + x2 + ..., with one input also the op that stores an activated value. Only the
// sum is stored; its gradient goes to every input as it is.
#include <span>

#include "base/thread_pool.h"
#include "ops/rows/row_tiles.h"

namespace tri::ops {

// Scratch of one worker for both passes.
inline size_t add_worker_bytes(const RowTiles& tiles) { return 2 * tiles.tile_bytes(); }

// Inputs are summed in their order, in fp32, and rounded once.
StoreCounts add_forward(const RowTiles& tiles, std::span<const Source> inputs, const Sink& out,
                        std::byte* scratch, base::ThreadPool& pool) noexcept;

// A sink may be the memory of the gradient itself; one without data is passed over. There are at
// most four, written in their order; `lost` gets what each lost.
StoreCounts add_backward(const RowTiles& tiles, const GradSource& grad,
                         std::span<const Sink> inputs, std::span<StoreCounts> lost,
                         std::byte* scratch, base::ThreadPool& pool) noexcept;

}  // namespace tri::ops
