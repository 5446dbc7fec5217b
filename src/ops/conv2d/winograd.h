#pragma once
// Room: ops. Dense 3x3 convolution of stride 1, forward and backward to the data, by Winograd's
// F(2x2, 3x3): 16 products instead of 36 for every four results. Transforms and sums are fp32; what
// is multiplied may be rounded to bf16. winograd_test.cpp derives and checks how far either may lie
// from the sum over taps.
//
// Note [Choice of Winograd]. By the shape alone, so that every batch, micro-batch and run has the
// same bits: small maps lose their gain to half-used tiles and to the 16 / 9 larger weights, few
// channels lose it to the transforms, and where pairs halve the time of the products the transforms
// weigh twice as much. Transforming the weights costs what the products of one
// to five images of 8 x 8 cost, so that very small batches gain less (docs/performance/kernels.md).
// The rule leaves the batch out all the same: a micro-batch, a smaller batch of the same run and an
// evaluation must have the bits of the whole. Where that costs time, --tune measures.
#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"
#include "ops/conv2d/conv_geometry.h"
#include "ops/conv2d/gather_plan.h"
#include "ops/conv2d/pair_kernel.h"
#include "ops/rows/rows.h"
#include "ops/rows/weights.h"

namespace tri::ops {

bool can_winograd(const ConvGeometry& geometry);
// And is likely to gain by it.
bool suits_winograd(const ConvGeometry& geometry, Products products = Products::kF32);

struct WinogradPlan {
  // REQUIRES: can_winograd(geometry).
  WinogradPlan(const ConvGeometry& geometry, Direction direction, int64_t samples,
               Products products = Products::kF32);

  ConvGeometry geometry;
  Direction direction;
  int64_t samples;
  Products products;
  Shape src, dst;
  int64_t src_units;             // of a pixel
  int64_t padding_h, padding_w;  // of src
  int64_t panels;                // of 16 channels of dst
  int64_t patches_h, patches_w;  // tiles of 2 x 2 results: "patch" here, "tile" is the pool's
  // Whose weights are transformed together. The sources are transformed anew for the next ones.
  int64_t weight_panels;
  // A tile: so many samples, lines of patches and panels.
  int64_t tile_samples, tile_lines, tile_panels;

  size_t tiles(int64_t of_panels) const;
  int64_t tile_patches() const { return tile_samples * tile_lines * patches_w; }
  // Panels that share what is read of the source.
  int64_t panels_at_once() const { return PanelGroups{panels, most_panels(products)}.largest(); }
  size_t shared_bytes() const;  // weights, [panel][frequency][src unit][16]
  size_t worker_bytes() const;
  size_t scratch_bytes(size_t threads) const { return shared_bytes() + threads * worker_bytes(); }
};

// As conv_forward() and conv_backward_data() (gather_conv.h).
StoreCounts conv_forward(const WinogradPlan& plan, const Source& src, const Weights& weights,
                         const float* bias, const Sink& dst, std::byte* scratch,
                         base::ThreadPool& pool) noexcept;
StoreCounts conv_backward_data(const WinogradPlan& plan, const GradSource& src,
                               const Weights& weights, const Sink& dst, std::byte* scratch,
                               base::ThreadPool& pool) noexcept;

}  // namespace tri::ops
