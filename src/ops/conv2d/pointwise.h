#pragma once
// Room: ops. Backward to the data of a 1x1 convolution beside its backward to the weights: both
// read the gradient of the output, which is rebuilt from two tensors in memory and packed only
// once. The sums are those of conv_backward_data(), bit for bit.
#include <cstddef>
#include <cstdint>

#include "ops/conv2d/outer_conv.h"
#include "ops/rows/counts.h"
#include "ops/rows/weights.h"

namespace tri::ops {

struct PointwisePlan {
  // REQUIRES: outer.geometry.pointwise(); pairs keep their rows.
  explicit PointwisePlan(const OuterPlan& outer);

  int64_t panels;  // of 16 input channels
  int64_t block;   // positions of a tile
  int64_t blocks;  // of a unit, at the most
  int64_t parts;   // of the panels: tiles of small maps are many all the same
  Segment all;     // of a row

  size_t shared_bytes(const OuterPlan& outer) const;  // the weights, turned round
  size_t worker_bytes() const;
};

// Writes dX of every chunk that conv_backward_weights() has packed. Weights are read when it is
// made: what happens to them afterwards is the update's business.
class PointwiseData final : public ChunkReader {
 public:
  // scratch: plan.shared_bytes() + pool.threads() * plan.worker_bytes().
  PointwiseData(const OuterPlan& outer, const PointwisePlan& plan, const Weights& weights,
                const Sink& dst, std::byte* scratch, base::ThreadPool& pool);
  void read(const float* chunk, size_t first, size_t count) noexcept override;
  void read_unit(const float* packed, size_t unit, size_t worker) noexcept override;
  StoreCounts total() const { return counts_.total(); }

 private:
  // Positions [begin, begin + block) of a unit, counted sample by sample, and panels
  // [first, last).
  void tile(const float* chunk, size_t index, const OuterUnit& unit, int64_t begin, int64_t first,
            int64_t last, size_t worker);
  int64_t first_panel(size_t part) const;

  const OuterPlan& outer_;
  const PointwisePlan& plan_;
  Sink dst_;
  float* turned_;  // [panel][output channel][16], units
  std::byte* workers_;
  base::ThreadPool& pool_;
  CountSum counts_;
};

}  // namespace tri::ops
