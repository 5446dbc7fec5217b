#pragma once
// Room: exec. What one output position of a convolution sees of its input, as a row: the patch
// whose outer product with the position's gradient is its share of dW. A linear layer has one
// position.
#include <cstdint>

#include "ops/conv2d/conv_geometry.h"
#include "ops/rows/rows.h"

namespace tri::exec {

// Elements [begin, end) of a patch, counted as [tap][input channel of the group].
struct PatchRange {
  int64_t group;
  int64_t begin, end;
};

// dst[i * stride + e - begin] for `count` positions of a sample from `first` on; zeros where the
// patch hangs over the edge.
void load_patches(const ops::ConvGeometry& geometry, const ops::Source& x, int64_t sample,
                  int64_t first, int64_t count, const PatchRange& range, float* dst,
                  int64_t stride);

// The same tensors as a batch of the one sample n.
ops::Source sample_of(ops::Source source, int64_t n);
ops::GradSource sample_of(ops::GradSource source, int64_t n);

}  // namespace tri::exec
