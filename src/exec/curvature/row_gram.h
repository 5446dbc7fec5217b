#pragma once
// Room: exec. Inner products of all pairs of rows of a matrix that comes piece by piece: what every
// Gram matrix of the curvature pass is made of. Runs on the panel kernel of the convolutions.
#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"

namespace tri::exec {

struct RowGram {
  RowGram(int64_t row_count, size_t thread_count);

  int64_t rows;
  int64_t padded;  // rows, up to a multiple of 16
  int64_t blocks;  // of 16 rows
  int64_t lanes;   // sums that are made side by side where there are few blocks
  size_t threads;

  size_t sum_bytes() const;      // what add() adds up
  size_t scratch_bytes() const;  // of add()

  void clear(float* sums) const;
  // sums += matrix * its transpose. The matrix is (padded, stride) with zeros behind its rows.
  // Pieces of fixed length are summed one after the other within a lane, so the threads do not
  // show. REQUIRES: columns and stride multiples of 16, padded * stride < 2^31.
  void add(const float* matrix, int64_t stride, int64_t columns, float* sums, std::byte* scratch,
           base::ThreadPool& pool) const;
  // REQUIRES: row >= column.
  double value(const float* sums, int64_t row, int64_t column) const;
};

}  // namespace tri::exec
