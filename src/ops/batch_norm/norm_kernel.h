#pragma once
// Room: ops. Sums over the rows of one tile, one chain per channel, and what is made of them.
#include <cstdint>

#include "ops/batch_norm/norm.h"
#include "ops/rows/transform_kernel.h"

namespace tri::ops {

// mean[c] and m2[c] = sum of squared distances from it. REQUIRES: rows > 0.
void tile_moments(const RowsAt& rows, int64_t count, int64_t channels, float* mean,
                  float* m2) noexcept;

// plain[c] = sum of dz, centred[c] = sum of dz * (y - mean). Both are of one format, or dz is of
// fp32.
void tile_grad_sums(const RowsAt& dz, const RowsAt& y, int64_t count, int64_t channels,
                    const float* mean, float* plain, float* centred) noexcept;

// What follows joins such sums of one ghost batch in double precision, for `channels` channels.
// Addresses are those of the first one; the sums of a tile are [2][stride].
struct JoinedTiles {
  const float* sums;
  int64_t stride;
  int64_t rows;       // of the ghost batch
  int64_t tile_rows;  // of all tiles but the last
  int64_t channels;
};

// By Chan's formula: no E[x^2] - E[x]^2. `running` as in NormRunning.
void join_moments(const JoinedTiles& tiles, const NormParams& params, const NormBatch& batch,
                  const NormRunning& running) noexcept;

void join_grads(const JoinedTiles& tiles, const NormParams& params, const NormBatch& batch,
                const NormGrads& grads) noexcept;

// The same from FactoredSums of so many samples, `stride` floats apart from sum to sum.
void join_factored_grads(const FactoredSums& sums, int64_t samples, int64_t stride, int64_t rows,
                         int64_t channels, const NormParams& params, const NormBatch& batch,
                         const NormGrads& grads) noexcept;

}  // namespace tri::ops
