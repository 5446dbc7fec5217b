#pragma once
// Room: exec. Per-sample gradients of a bias, or of a norm's gamma and beta with frozen statistics:
// sums over one sample's pixels. Few numbers, so all samples' are held at once.
#include <cstddef>
#include <cstdint>

#include "exec/curvature/row_gram.h"
#include "ops/rows/rows.h"
#include "tensor/shape.h"

namespace tri::exec {

// The running statistics that a frozen norm uses.
struct FrozenNorm {
  const float* mean = nullptr;  // null: a bias
  const float* variance = nullptr;
  float eps = 0.0f;
};

class VectorGram {
 public:
  VectorGram(const tensor::Shape& shape, int64_t samples, size_t threads);

  int64_t padded() const { return padded_; }      // of one vector: channels, up to 32
  int64_t stride() const { return 2 * padded_; }  // of a sample's row: bias or beta, then gamma
  size_t row_bytes() const;                       // of all samples
  size_t load_bytes() const;                      // scratch of load()
  size_t scratch_bytes() const;                   // of add(), rows included

  // rows (samples, up to 16; stride): zeros where there is nothing. `d`: the gradient of the stored
  // tensor (bias), or that before the norm.
  void load(const ops::GradSource& d, const FrozenNorm& norm, float* rows, std::byte* scratch,
            base::ThreadPool& pool) const;
  // gram[i * samples + j] += g_i . g_j for i >= j.
  void add(const ops::GradSource& d, const FrozenNorm& norm, double* gram, std::byte* scratch,
           base::ThreadPool& pool) const;

 private:
  size_t worker_floats() const;

  tensor::Shape shape_;
  int64_t samples_, padded_, tile_rows_;
  size_t threads_;
  RowGram products_;
};

}  // namespace tri::exec
