#pragma once
// Room: ops. Dense 3x3 convolution of stride 1, forward and backward to the data, by Winograd's
// F(2x2, 3x3): 16 products instead of 36 for every four results. fp32 throughout; winograd_test.cpp
// derives and checks how far it may lie from the sum over taps.
//
// Note [Choice of Winograd]. By the shape alone, so that every batch, micro-batch and run has the
// same bits: maps below 8 x 8 lose their gain to half-used tiles and to the 16 / 9 larger weights,
// few channels lose it to the transforms. Transforming the weights costs what the products of one
// to five images of 8 x 8 cost, so that very small batches gain less (docs/performance.md). The
// rule leaves the batch out all the same: a micro-batch, a smaller batch of the same run and an
// evaluation must have the bits of the whole. Where that costs time, --tune measures.
#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"
#include "ops/conv2d/conv_geometry.h"
#include "ops/conv2d/gather_plan.h"
#include "ops/rows/rows.h"
#include "ops/rows/weights.h"

namespace tri::ops {

bool can_winograd(const ConvGeometry& geometry);
bool suits_winograd(const ConvGeometry& geometry);  // and is likely to gain by it

struct WinogradPlan {
  // REQUIRES: can_winograd(geometry).
  WinogradPlan(const ConvGeometry& geometry, Direction direction, int64_t samples);

  ConvGeometry geometry;
  Direction direction;
  int64_t samples;
  Shape src, dst;
  int64_t padding_h, padding_w;  // of src
  int64_t panels;                // of 16 channels of dst
  int64_t patches_h, patches_w;  // tiles of 2 x 2 results: "patch" here, "tile" is the pool's
  // A tile: so many samples, lines of patches and panels.
  int64_t tile_samples, tile_lines, tile_panels;

  size_t tiles() const;
  int64_t tile_patches() const { return tile_samples * tile_lines * patches_w; }
  size_t shared_bytes() const;  // transformed weights, [panel][frequency][src channel][16]
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
