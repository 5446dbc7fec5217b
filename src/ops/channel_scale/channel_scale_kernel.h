#pragma once
// Room: ops. The sums of channel_scale.h on rows of the common formats.
#include <cstdint>

#include "ops/batch_norm/norm.h"
#include "ops/rows/transform_kernel.h"

namespace tri::ops {

// In the order in which they lie: of du * x, then those of FactoredSums.
inline constexpr int64_t kScaleSums = 1 + kFactoredSums;

// sums[which][channel] over `rows`, one chain each. x = activation(scale * y + shift), y is
// `stored`. `grad` is of the format of `stored`, or of fp32. REQUIRES: a norm, no factors.
void sum_scaled_rows(const TransformParams& params, const float* mean, const RowsAt& grad,
                     const RowsAt& stored, int64_t rows, int64_t channels, float* sums) noexcept;

}  // namespace tri::ops
