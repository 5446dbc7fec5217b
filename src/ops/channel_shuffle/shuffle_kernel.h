#pragma once
// Room: ops. The channels of rows, read as (groups, channels / groups) and written transposed.
#include <cstddef>
#include <cstdint>

namespace tri::ops {

// Rows of numbers of 1, 2 or 4 bytes; strides in numbers. dst and src do not overlap.
struct ShuffleRun {
  const void* src;
  int64_t src_stride;
  void* dst;
  int64_t dst_stride;
  int64_t rows, channels, groups;
  size_t number_bytes;
};

// Two groups, and its inverse of two channels in every group, in vectors; others one by one.
void shuffle_rows(const ShuffleRun& run) noexcept;

}  // namespace tri::ops
