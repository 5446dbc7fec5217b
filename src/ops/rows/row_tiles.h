#pragma once
// Room: ops. The cut of operations that work row by row: tiles of whole pixels of one sample, small
// enough for L1 and L2, fixed by the shape alone.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ops/rows/rows.h"
#include "tensor/shape.h"

namespace tri::ops {

struct RowTiles {
  RowTiles(int64_t sample_count, const tensor::Shape& shape)
      : samples(sample_count),
        pixels(shape.pixels()),
        channels(shape.c),
        tile_pixels(std::clamp<int64_t>(8192 / shape.c, 1, shape.pixels())) {}

  int64_t samples, pixels, channels, tile_pixels;

  int64_t sample_tiles() const { return (pixels + tile_pixels - 1) / tile_pixels; }
  size_t tiles() const { return static_cast<size_t>(samples * sample_tiles()); }
  RowRange range(size_t tile) const {
    const int64_t sample = static_cast<int64_t>(tile) / sample_tiles();
    const int64_t pixel = static_cast<int64_t>(tile) % sample_tiles() * tile_pixels;
    return {sample, pixel, std::min(tile_pixels, pixels - pixel), 0, channels};
  }
  // Room for one tile as fp32.
  size_t tile_bytes() const { return static_cast<size_t>((tile_pixels * channels + 15) / 16) * 64; }
};

}  // namespace tri::ops
