#pragma once
// Room: ops. Sums over the rows of one tile, per channel, one chain per channel.
#include <cstdint>

#include "ops/rows/transform_kernel.h"

namespace tri::ops {

// mean[c] and m2[c] = sum of squared distances from it. REQUIRES: rows > 0.
void tile_moments(const RowsAt& rows, int64_t count, int64_t channels, float* mean,
                  float* m2) noexcept;

// plain[c] = sum of dz, centred[c] = sum of dz * (y - mean). Both are of one format, or dz is of
// fp32.
void tile_grad_sums(const RowsAt& dz, const RowsAt& y, int64_t count, int64_t channels,
                    const float* mean, float* plain, float* centred) noexcept;

}  // namespace tri::ops
