#pragma once
// Room: ops. The arithmetic of Note [Load transform] on fp32 rows; rows.cpp adds formats and
// ranges.
#include <cstddef>
#include <cstdint>

#include "ops/op.h"

namespace tri::ops {

// One ghost batch's view of the transform; all pointers already at the first channel wanted.
struct TransformParams {
  const float* scale = nullptr;  // null: no norm
  const float* shift = nullptr;
  const float* channel_factor = nullptr;  // null: none
  float sample_factor = 1.0f;
  Activation activation = Activation::kNone;
};

// dst = activation(scale * src + shift) * factors, row by row. dst may be src.
void transform_rows(const TransformParams& params, const float* src, int64_t src_stride, float* dst,
                    int64_t dst_stride, int64_t rows, int64_t channels) noexcept;

struct GradParams {
  TransformParams value;
  const float* a = nullptr;  // null: no norm
  const float* b = nullptr;  // null: statistics are frozen
  const float* c = nullptr;
  const float* mean = nullptr;
};

// dst = a * dz + b * (stored - mean) + c with dz = grad * factors * activation'(scale * stored +
// shift). dst may be grad or stored.
void transform_grad_rows(const GradParams& params, const float* grad, int64_t grad_stride,
                         const float* stored, int64_t stored_stride, float* dst, int64_t dst_stride,
                         int64_t rows, int64_t channels) noexcept;

// sums[i] += parts[i].
void add_floats(const float* parts, int64_t count, float* sums) noexcept;

// values[i] *= factor.
void scale_floats(float factor, float* values, int64_t count) noexcept;

// The largest magnitude of those that are numbers.
float max_abs(const float* values, int64_t count) noexcept;

// Squeeze-excite's backward on one row: sums += grad * value, then grad *= factor.
void scale_grad_row(const float* value, const float* factor, int64_t channels, float* grad,
                    float* sums) noexcept;

}  // namespace tri::ops
