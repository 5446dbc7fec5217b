#include "exec/curvature/vector_gram.h"

#include <algorithm>
#include <cmath>

#include "ops/batch_norm/norm_kernel.h"
#include "ops/rows/transform_kernel.h"

namespace tri::exec {
namespace {

// As in ops/batch_norm: a tile within L1, and short chains of fp32.
constexpr int64_t kTileFloats = 6144;
constexpr int64_t kTileRows = 128;

size_t padded_bytes(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

VectorGram::VectorGram(const tensor::Shape& shape, int64_t samples, size_t threads)
    : shape_(shape),
      samples_(samples),
      padded_((shape.c + 31) / 32 * 32),
      tile_rows_(std::clamp<int64_t>(kTileFloats / shape.c, 8, kTileRows)),
      threads_(threads),
      products_(samples, threads) {}

size_t VectorGram::row_bytes() const {
  return static_cast<size_t>(products_.padded * stride()) * sizeof(float);
}

// The gradient and the values of a tile, and its two sums.
size_t VectorGram::worker_floats() const {
  return static_cast<size_t>(2 * tile_rows_ * shape_.c + 2 * padded_);
}

size_t VectorGram::load_bytes() const { return threads_ * worker_floats() * sizeof(float); }

size_t VectorGram::scratch_bytes() const {
  return row_bytes() + padded_bytes(products_.sum_bytes()) +
         padded_bytes(std::max(products_.scratch_bytes(), load_bytes()));
}

void VectorGram::load(const ops::GradSource& d, const FrozenNorm& norm, float* rows,
                      std::byte* scratch, base::ThreadPool& pool) const {
  const int64_t channels = shape_.c, pixels = shape_.pixels();
  ops::Source stored;
  stored.stored = d.value.stored;
  pool.run(static_cast<size_t>(products_.padded), [&](size_t index, size_t worker) {
    const auto n = static_cast<int64_t>(index);
    float* sums = rows + n * stride();
    std::fill_n(sums, stride(), 0.0f);
    if (n >= samples_) return;
    float* dz = reinterpret_cast<float*>(scratch) + static_cast<int64_t>(worker * worker_floats());
    float* y = dz + tile_rows_ * channels;
    float* plain = y + tile_rows_ * channels;
    float* centred = plain + padded_;
    for (int64_t pixel = 0; pixel < pixels; pixel += tile_rows_) {
      const ops::RowRange range{n, pixel, std::min(tile_rows_, pixels - pixel), 0, channels};
      ops::load_grad_rows(d, range, dz, channels);
      if (norm.mean == nullptr) {
        for (int64_t i = 0; i < range.count; ++i)
          ops::add_floats(dz + i * channels, channels, sums);
        continue;
      }
      ops::load_rows(stored, range, y, channels);
      ops::tile_grad_sums({dz, ops::Format::kF32, channels}, {y, ops::Format::kF32, channels},
                          range.count, channels, norm.mean, plain, centred);
      ops::add_floats(plain, channels, sums);
      ops::add_floats(centred, channels, sums + padded_);
    }
    if (norm.mean == nullptr) return;
    for (int64_t c = 0; c < channels; ++c)
      sums[padded_ + c] = static_cast<float>(
          double{sums[padded_ + c]} / std::sqrt(double{norm.variance[c]} + double{norm.eps}));
  });
}

void VectorGram::add(const ops::GradSource& d, const FrozenNorm& norm, double* gram,
                     std::byte* scratch, base::ThreadPool& pool) const {
  auto* rows = reinterpret_cast<float*>(scratch);
  auto* sums = reinterpret_cast<float*>(scratch + row_bytes());
  std::byte* rest = scratch + row_bytes() + padded_bytes(products_.sum_bytes());
  load(d, norm, rows, rest, pool);
  products_.clear(sums);
  products_.add(rows, stride(), stride(), sums, rest, pool);
  for (int64_t i = 0; i < samples_; ++i)
    for (int64_t j = 0; j <= i; ++j) gram[i * samples_ + j] += products_.value(sums, i, j);
}

}  // namespace tri::exec
