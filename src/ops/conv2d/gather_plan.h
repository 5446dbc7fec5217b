#pragma once
// Room: ops. Forward and backward-data convolution are one job: every output row of 16 channels is
// a sum over the taps that touch a real row of the source. A GatherPlan settles, once per shape and
// number of samples, which taps those are and how the job is cut into tiles; the cut depends on the
// shape alone, never on the threads. Holds small tables, knows no data.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/conv2d/conv_geometry.h"
#include "ops/conv2d/pair_kernel.h"

namespace tri::ops {

// One axis of the job: destinations that meet the same taps at the same distances.
struct AxisClass {
  struct Tap {
    int32_t k;      // tap, in the order of the panel
    int32_t delta;  // source index minus that of the first tap
  };
  std::vector<Tap> taps;
  std::vector<int32_t> dst;   // destination indices
  std::vector<int32_t> base;  // source index of the first tap, one per destination
};

enum class Direction : uint8_t { kForward, kBackwardData };

struct GatherPlan {
  GatherPlan(const ConvGeometry& geometry, Direction direction, int64_t samples,
             Products products = Products::kF32);

  ConvGeometry geometry;
  Direction direction;
  int64_t samples;
  Products products;
  Shape src, dst;                // whole tensors: in -> out, or out -> in
  int64_t src_group, dst_group;  // channels of one group
  int64_t src_units;             // of one pixel of a group, see Note [Units] in pair_kernel.h
  int64_t panels;                // of one group of dst
  // A tile: so many samples, rows of dst and panels of one group.
  int64_t tile_samples, tile_rows, tile_panels;
  int64_t tile_src_rows;  // the most rows of src that a tile reads
  // Tiles that share source rows read them from one copy that is made before they start.
  bool shared_source;
  std::vector<AxisClass> ys, xs;
  std::vector<Segment> segments;  // of class (y, x) at segment_begin[y * xs.size() + x]
  std::vector<int32_t> segment_begin;
  std::vector<bool> tap_used;  // in the order of the panel

  // Panels that share what is read of the source: all of them stay in L2.
  int64_t at_once;
  // Tiles of the same panels follow each other, and a worker keeps the panels of its last tile.
  // Where all of them fit in L2 anyway, tiles of the same samples do.
  bool keeps_panels;
  // So many panels are made ready at a time, by all threads; 0: each tile makes its own, or reads
  // them where they lie. To turn weights round on the way back costs as much as a few dozen rows,
  // to make pairs of them half of that.
  int64_t shared_panels;

  int64_t panel_units() const { return geometry.taps() * src_units * kPanel; }
  int64_t pass_panels() const { return shared_panels == 0 ? panels : shared_panels; }
  int64_t worker_panels() const { return shared_panels == 0 ? std::min(at_once, tile_panels) : 0; }

  size_t tiles(int64_t of_panels) const;
  // Scratch of one worker in bytes: source rows, panels, results, row list, and which panels.
  size_t worker_bytes() const;
  int64_t shared_source_floats() const;
  size_t shared_bytes() const;  // source, panels
  size_t scratch_bytes(size_t threads) const { return shared_bytes() + threads * worker_bytes(); }
};

}  // namespace tri::ops
