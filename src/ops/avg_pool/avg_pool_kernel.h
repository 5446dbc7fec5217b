#pragma once
// Room: ops. Average pooling of one row on fp32 rows. One form serves both passes: forward, a sum
// is scaled by its window's share; backward, every gradient is scaled by its window's before.
#include <cstddef>
#include <cstdint>

#include "ops/window/window_plan.h"

namespace tri::ops {

// Strides in floats; addresses at the first channel of column 0. A null factor is 1.
struct AvgPoolRow {
  const float* const* src;  // one address per vertical tap
  int64_t src_count;
  int64_t src_pixel;
  const float* src_row_factor;     // one per vertical tap
  const float* src_column_factor;  // one per source column; null iff src_row_factor is
  const ColumnRun* runs;
  size_t run_count;
  int64_t src_step, dst_step;
  float dst_row_factor;
  const float* dst_column_factor;  // one per destination column
  float* dst;
  int64_t dst_pixel;
  int64_t channels;
};

void avg_pool_row(const AvgPoolRow& row) noexcept;

}  // namespace tri::ops
