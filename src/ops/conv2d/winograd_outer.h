#pragma once
// Room: ops. Backward to the weights of a dense 3x3 convolution of stride 1 by Winograd's
// F(2x2, 3x3), the transforms of winograd.h turned round: a patch of 4 x 4 inputs and a tile of
// 2 x 2 gradients become 16 numbers each; their products are summed over all tiles and become the
// 9 taps at the end. 16 products instead of 36 for every four gradients. With products of bf16 a
// pair is two neighbouring patches of a line.
//
// Note [Order of dW by Winograd]. As in Note [Order of dW] the samples are cut into units at
// ghost-batch boundaries, and the cut depends on the shape alone. The 16 sums begin at zero in
// every ghost batch and run over its units; its 9 taps are added to those of the ghosts before. So
// threads and micro-batches change no bit.
//
// A unit is packed by all threads. Then every frequency is a matrix product of its own, which a
// thread makes with its operands, a sixteenth of the unit, in L2: cut by channels instead, all
// threads would read most of the unit again and again, and half of it from another core's cache.
//
// With products of fp32 operands lie as rows, as in Note [Units as rows], where the transforms
// leave them; pairs of patches are packed into panels.
//
// With few channels the units are apart, as in Note [Units apart]: a thread packs and multiplies
// the units of a span alone, with all its sums in L2. The 16 sums begin at zero in every span, its
// 9 taps go to a slot of its own, and the slots are added in stream order. Spans are cut as units
// are.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/conv2d/outer_conv.h"

namespace tri::ops {

bool can_winograd_weights(const ConvGeometry& geometry, Products products);

struct WinogradOuterPlan {
  // `ghost`: samples of a ghost batch, 0 for the whole batch. REQUIRES: can_winograd_weights().
  WinogradOuterPlan(const ConvGeometry& geometry, int64_t samples, int64_t ghost,
                    Products products = Products::kF32);

  struct Unit {
    int64_t sample, samples;
    int64_t line, lines;  // of patches
    bool begins, ends;    // the first, the last of its ghost batch
  };

  ConvGeometry geometry;
  int64_t samples;
  Products products;
  int64_t patches_h, patches_w;  // tiles of 2 x 2 gradients
  int64_t line_units;            // patches of a line, or pairs of neighbours among them
  int64_t channels;              // rows of one tap: input channels
  int64_t in_width;              // of an in panel: outer_rows()
  int64_t in_panels, out_panels, job_panels;
  bool apart;
  int64_t unit_length;  // of its packed panels: the most lines of patches times line_units
  int64_t share_lines;  // lines of patches that are packed together
  std::vector<Unit> units;
  int64_t ghosts;
  struct Span {
    size_t begin, end;  // units
  };
  std::vector<Span> spans;  // with units apart
  size_t chunk_spans;       // whose slots are added together

  // Meanings as in OuterPlan.
  bool whole_gradient() const { return apart ? spans.size() > chunk_spans : ghosts > 1; }
  bool bounded_gradient() const { return false; }
  size_t parts() const;
  size_t slot_floats() const;   // [job][tap][in panel of the job][rows][16]
  size_t shared_bytes() const;  // a packed unit and the sums of all frequencies; apart: slots
  size_t worker_bytes() const;
};

// As conv_backward_weights() (outer_conv.h).
void conv_backward_weights(const WinogradOuterPlan& plan, const Source& x, const GradSource& d,
                           const float* initial, float* partial, GradConsumer& consumer,
                           std::byte* scratch, base::ThreadPool& pool) noexcept;

}  // namespace tri::ops
