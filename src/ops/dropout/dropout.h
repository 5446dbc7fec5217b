#pragma once
// Room: ops. Dropout of elements. The mask is drawn from (seed, sample, layer, element) and never
// stored: backward and recomputation draw it again, whatever batch the sample is in.
#include <cstdint>

#include "base/thread_pool.h"
#include "ops/rows/row_tiles.h"

namespace tri::ops {

struct DropoutMask {
  uint64_t seed = 0;
  const uint64_t* samples = nullptr;  // identity of every sample of the batch in its epoch
  uint64_t layer = 0;
  float rate = 0.0f;  // < 1; kept elements grow by 1 / (1 - rate)
};

inline size_t dropout_worker_bytes(const RowTiles& tiles) { return tiles.tile_bytes(); }

StoreCounts dropout_forward(const RowTiles& tiles, const DropoutMask& mask, const Source& in,
                            const Sink& out, std::byte* scratch, base::ThreadPool& pool) noexcept;
StoreCounts dropout_backward(const RowTiles& tiles, const DropoutMask& mask, const GradSource& grad,
                             const Sink& in, std::byte* scratch, base::ThreadPool& pool) noexcept;

}  // namespace tri::ops
