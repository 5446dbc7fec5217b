#pragma once
// Room: ops. Moving channels: concatenation, split and shuffle are all copies of channel ranges. A
// copy takes `channels` channels from `from` on and puts them to `to` on.
#include "base/thread_pool.h"
#include "ops/rows/row_tiles.h"

namespace tri::ops {

struct ChannelCopy {
  int64_t from = 0;
  int64_t to = 0;
  int64_t channels = 0;
  // > 1: the channels are read as (groups, channels / groups) and written transposed, as the
  // channel shuffle of ShuffleNet does. Its inverse has channels / groups groups.
  int64_t groups = 1;
};

inline size_t copy_worker_bytes(const RowTiles& tiles) { return 2 * tiles.tile_bytes(); }

// `tiles` cuts the wider of the two tensors.
StoreCounts copy_channels(const RowTiles& tiles, const ChannelCopy& copy, const Source& in,
                          const Sink& out, std::byte* scratch, base::ThreadPool& pool) noexcept;

// The way back: `copy.from` counts channels of the gradient, `copy.to` those of the input.
StoreCounts copy_channels_grad(const RowTiles& tiles, const ChannelCopy& copy,
                               const GradSource& grad, const Sink& in, std::byte* scratch,
                               base::ThreadPool& pool) noexcept;

}  // namespace tri::ops
