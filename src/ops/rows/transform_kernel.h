#pragma once
// Room: ops. The arithmetic of Note [Load transform] on rows of the common formats; rows.cpp adds
// the others and ranges.
#include <cstddef>
#include <cstdint>

#include "numeric/format.h"
#include "ops/op.h"
#include "ops/rows/rows.h"

namespace tri::ops {

// One ghost batch's view of the transform; all pointers already at the first channel wanted.
struct TransformParams {
  const float* scale = nullptr;  // null: no norm
  const float* shift = nullptr;
  const float* channel_factor = nullptr;  // null: none
  float sample_factor = 1.0f;
  Activation activation = Activation::kNone;
  bool of_half = false;  // see Source
};

// Of one sample, or of what else a range may cover.
TransformParams params_of(const Source& source, const RowRange& range) noexcept;

// Rows of a tensor where they lie, from the first channel wanted on.
struct RowsAt {
  const void* data;
  numeric::Format format;  // one that converts_on_load()
  int64_t stride;          // elements
  float factor = 1.0f;     // fp16: a power of two on all numbers
};
RowsAt rows_at(const Stored& stored, const RowRange& range) noexcept;
constexpr bool converts_on_load(numeric::Format format) {
  using numeric::Format;
  return format == Format::kF32 || format == Format::kBf16 || format == Format::kF16;
}

// Whether kernels read a gradient and its tensor, which convert on load, together.
constexpr bool read_together(numeric::Format grad, numeric::Format stored) {
  return grad == stored || grad == numeric::Format::kF32;
}

// dst = activation(scale * src + shift) * factors, row by row. dst may be src.
void transform_rows(const TransformParams& params, const RowsAt& src, float* dst,
                    int64_t dst_stride, int64_t rows, int64_t channels) noexcept;

// The same without factors, and slopes[i] = activation'(scale * src + shift) beside every dst[i].
void transform_rows_with_slopes(const TransformParams& params, const RowsAt& src, float* dst,
                                float* slopes, int64_t stride, int64_t rows,
                                int64_t channels) noexcept;

struct GradParams {
  TransformParams value;
  const float* channel_addend = nullptr;
  const float* a = nullptr;  // null: no norm
  const float* b = nullptr;  // null: statistics are frozen
  const float* c = nullptr;
  const float* mean = nullptr;
};

// dst = a * dz + b * (stored - mean) + c with dz = (grad * factors + channel_addend) *
// activation'(scale * stored + shift). dst may be grad or stored. Both are of one format, or grad
// is of fp32.
void transform_grad_rows(const GradParams& params, const RowsAt& grad, const RowsAt& stored,
                         float* dst, int64_t dst_stride, int64_t rows, int64_t channels) noexcept;

// sums[i] += parts[i].
void add_floats(const float* parts, int64_t count, float* sums) noexcept;

// sums[c] += a[row][c] * b[row][c], row by row; rows follow one another.
void add_products(const float* a, const float* b, int64_t rows, int64_t channels,
                  float* sums) noexcept;
// row *= factor, for rows that follow one another.
void multiply_rows(const float* factor, int64_t rows, int64_t channels, float* values) noexcept;

}  // namespace tri::ops
