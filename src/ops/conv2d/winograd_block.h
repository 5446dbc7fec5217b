#pragma once
// Room: ops. The part of a tensor under some lines of Winograd's patches, as fp32, zeros where the
// tensor ends.
#include <algorithm>
#include <cstdint>

#include "ops/rows/rows.h"

namespace tri::ops {

// block[row][column][channel]: rows [top, top + rows) of one sample; its first column comes at
// `left`. load(range, dst) fetches one row.
template <class Load>
void load_block(const Shape& shape, int64_t sample, int64_t top, int64_t rows, int64_t left,
                int64_t columns, Load load, float* block) {
  const int64_t c = shape.c, right = left + shape.w;
  for (int64_t i = 0; i < rows; ++i) {
    float* row = block + i * columns * c;
    if (top + i < 0 || top + i >= shape.h) {
      std::fill_n(row, columns * c, 0.0f);
      continue;
    }
    std::fill_n(row, left * c, 0.0f);
    load(RowRange{sample, (top + i) * shape.w, shape.w, 0, c}, row + left * c);
    std::fill(row + right * c, row + columns * c, 0.0f);
  }
}

}  // namespace tri::ops
