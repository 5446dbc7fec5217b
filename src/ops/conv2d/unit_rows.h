#pragma once
// Room: ops. Rows of a tensor, or of its gradient, as the units that a kernel multiplies: see Note
// [Units] in pair_kernel.h.
#include <cstdint>

#include "ops/conv2d/pair_kernel.h"
#include "ops/rows/rows.h"

namespace tri::ops {

// The tensor itself, where what is stored is what is multiplied; otherwise null.
const float* units_in_place(const Source& source, Products products);
const float* units_in_place(const GradSource& source, Products products);

// Rows of fp32, one after the other, as pairs of channels.
void pair_channels(const float* rows, int64_t count, int64_t channels, float* dst) noexcept;

// Rows one after the other, each of units(products, range.channels).
void load_unit_rows(const Source& source, const RowRange& range, Products products,
                    float* dst) noexcept;
void load_unit_rows(const GradSource& source, const RowRange& range, Products products,
                    float* dst) noexcept;

}  // namespace tri::ops
