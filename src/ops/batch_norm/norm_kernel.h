#pragma once
// Room: ops. Sums over the rows of one tile, per channel, one chain per channel.
#include <cstdint>

namespace tri::ops {

// mean[c] and m2[c] = sum of squared distances from it. REQUIRES: rows > 0.
void tile_moments(const float* rows, int64_t stride, int64_t count, int64_t channels, float* mean,
                  float* m2) noexcept;

// plain[c] = sum of dz, centred[c] = sum of dz * (y - mean).
void tile_grad_sums(const float* dz, int64_t dz_stride, const float* y, int64_t y_stride,
                    int64_t count, int64_t channels, const float* mean, float* plain,
                    float* centred) noexcept;

}  // namespace tri::ops
