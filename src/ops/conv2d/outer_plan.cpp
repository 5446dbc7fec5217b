#include "ops/conv2d/outer_plan.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "ops/conv2d/outer_job.h"
#include "ops/rows/scratch_floats.h"

namespace tri::ops {
namespace {

using base::ceil_div;

// About 256 positions of 16 gradients are 16 KiB: a unit's panel of g stays in L1 while the panels
// of x stream past it.
constexpr int64_t kUnitPositions = 256;
// With blocks a panel of 16 channels is 256 KiB at the most: the rows above and below a strip are
// packed twice. Rows of 32 samples on their way there are in L2.
constexpr int64_t kBlockPositions = 4096, kBlockRowFloats = 32 << 10;
// With fewer samples than that pairs of them are multiplied one by one.
constexpr int64_t kLeastBlockSamples = 4;
// Packed at a time: small beside the activations, large beside the cost of three barriers
// (EfficientNet-B0 at 224 pixels: 1 MiB would make the way back 1.04 times as long, Zen 4).
constexpr int64_t kChunkBytes = 4 << 20;
// Enough for uneven cores.
constexpr int64_t kWantedJobs = 32;
// Units apart: enough of them in one sample or two, each with its operands in L2, and slots that
// cost little to add.
constexpr int64_t kApartPixels = 256, kApartUnitBytes = 512 << 10, kApartGradientBytes = 64 << 10;

// See Packed in outer_conv.cpp for the order of the columns.
TapColumns columns_of(const ConvGeometry& g, int64_t kx, int64_t packed_columns) {
  const int64_t shift = kx - g.padding_w;  // input column = output column * stride + shift
  const int64_t first = shift >= 0 ? 0 : ceil_div(-shift, g.stride_w);
  const int64_t last =
      g.in.w - shift <= 0 ? 0 : std::min(g.out.w, (g.in.w - shift - 1) / g.stride_w + 1);
  const int64_t column = first * g.stride_w + shift;
  return {first, last, column % g.stride_w * (packed_columns / g.stride_w) + column / g.stride_w};
}

// Whether a row of taps meets a row of the input.
bool meets_input(const ConvGeometry& g, int64_t ky) {
  for (int64_t y = 0; y < g.out.h; ++y) {
    const int64_t in_y = y * g.stride_h + ky - g.padding_h;
    if (in_y >= 0 && in_y < g.in.h) return true;
  }
  return false;
}

}  // namespace

OuterPlan::OuterPlan(const ConvGeometry& g, int64_t n, int64_t ghost, Products multiplied,
                     bool keep_rows)
    : geometry(g), samples(n), products(multiplied) {
  if (ghost == 0) ghost = n;
  window = g.group_in() < 16 && g.kernel_w > 1;
  channels = window ? g.kernel_w * g.group_in() : g.group_in();
  taps = window ? g.kernel_h : g.taps();
  as_rows = g.pointwise() && products == Products::kF32;
  blocks = products == Products::kBf16 && simd::multiplies_blocks() &&
           (g.pointwise() || ghost >= kLeastBlockSamples);
  in_width = blocks ? kPanel : outer_rows();
  in_panels = ceil_div(channels, in_width);
  out_panels = g.panels();
  packed_columns = window ? g.out.w : ceil_div(g.in.w, g.stride_w) * g.stride_w;
  if (window) tap_columns.push_back({0, g.out.w, 0});
  for (int64_t kx = 0; !window && kx < g.kernel_w; ++kx)
    tap_columns.push_back(columns_of(g, kx, packed_columns));
  int64_t idle = -1;
  for (int64_t ky = 0; ky < g.kernel_h; ++ky)
    for (const TapColumns& columns : tap_columns) {
      const auto tap = static_cast<int64_t>(sums_of_tap.size());
      const bool meets = columns.last > columns.first && meets_input(g, ky);
      if (!meets && idle < 0) idle = tap;
      sums_of_tap.push_back(meets ? tap : idle);
    }

  const bool of_samples = blocks && !flat();
  const int64_t unit_columns =
      of_samples ? kBlockPositions / kBlockUnits / g.out.w : kUnitPositions / g.out.w;
  const int64_t rows_at_once = std::clamp<int64_t>(unit_columns, 1, g.out.h);
  const int64_t strip = rows_at_once < g.out.h
                            ? std::max<int64_t>(rows_at_once, std::min<int64_t>(4, g.out.h))
                            : g.out.h;
  const int64_t side_by_side = of_samples ? kBlockDepth : products == Products::kBf16 ? 2 : 1;
  const int64_t positions = of_samples ? kBlockPositions / kBlockUnits : kUnitPositions;
  const int64_t together =
      std::min(ghost, side_by_side *
                          (strip < g.out.h ? 1 : std::max<int64_t>(1, positions / g.out.pixels())));
  unit_x = unit_g = unit_rows = 0;
  for (int64_t first = 0; first < n; first += ghost) {
    for (int64_t s = first; s < std::min(n, first + ghost); s += together) {
      const int64_t count = std::min({together, n - s, first + ghost - s});
      for (int64_t y = 0; y < g.out.h; y += strip) {
        const int64_t rows = std::min(strip, g.out.h - y);
        const int64_t low = std::max<int64_t>(0, y * g.stride_h - g.padding_h);
        const int64_t high =
            std::min(g.in.h, (y + rows - 1) * g.stride_h - g.padding_h + g.kernel_h);
        units.push_back({s, count, y, rows, low, std::max<int64_t>(0, high - low)});
        const OuterUnit& unit = units.back();
        unit_x = std::max(
            unit_x, flat() ? flat_positions(unit) : unit.in_rows * packed_columns * lanes(unit));
        unit_g = std::max(unit_g, flat() ? flat_positions(unit) : rows * g.out.w * lanes(unit));
        if (keep_rows)
          unit_rows = std::max(unit_rows, rows * g.out.w * count * ops::units(products, g.out.c));
      }
    }
  }

  block_columns = 0;
  if (blocks) {
    const int64_t row = std::max(g.group_in() * (window ? g.stride_w : 1), g.group_out());
    block_columns = std::clamp<int64_t>(kBlockRowFloats / (kBlockDepth * row), 1,
                                        flat() ? unit_g : std::max(g.in.w, g.out.w));
  }

  // An odd number of rows per tap is delivered a panel at a time: see Note [Panels].
  job_panels = channels % 2 != 0
                   ? in_panels
                   : panels_of_job(in_panels, out_panels, outs_at_once() * kWantedJobs);
  if (blocks) job_panels = std::min(in_panels, ceil_div(job_panels, 2) * 2);  // two at a time

  const auto unit_bytes = static_cast<int64_t>(unit_floats() * sizeof(float));
  const int64_t all_bytes = unit_bytes * static_cast<int64_t>(units.size());
  const int64_t gradient_bytes = g.weight_count() * int64_t{sizeof(float)};
  // Whatever the batch: x, g, and the rows of g.
  const int64_t about_bytes = strip * g.out.w * (channels + 2 * g.out.c) * int64_t{sizeof(float)};
  apart = g.groups == 1 && g.out.pixels() >= kApartPixels && about_bytes <= kApartUnitBytes &&
          gradient_bytes <= kApartGradientBytes;
  const int64_t kept = apart ? static_cast<int64_t>(slot_floats() * sizeof(float)) : unit_bytes;
  chunk_units = !apart && all_bytes <= std::max(kChunkBytes, gradient_bytes)
                    ? units.size()
                    : std::clamp<size_t>(static_cast<size_t>(kChunkBytes / kept), 1, units.size());
}

size_t OuterPlan::jobs() const { return outer_jobs(*this); }

size_t OuterPlan::parts() const {
  const auto whole = static_cast<size_t>(geometry.groups) * jobs();
  return channels % 2 == 0 ? whole * static_cast<size_t>(taps) : whole;
}

size_t OuterPlan::unit_floats() const {
  const int64_t floats = input_floats() + gradient_floats() + unit_rows;
  return static_cast<size_t>(ceil_div(floats, kPanel) * kPanel);
}

const float* OuterPlan::packed_gradient(const float* chunk, size_t index) const {
  return chunk + index * unit_floats() + input_floats();
}

size_t OuterPlan::slot_floats() const { return jobs() * static_cast<size_t>(job_sums()); }

size_t OuterPlan::shared_bytes() const {
  return chunk_units * (apart ? slot_floats() : unit_floats()) * sizeof(float);
}

int64_t OuterPlan::block_floats() const {
  if (!blocks) return 0;
  const int64_t overlap =
      window ? geometry.kernel_w - std::min(geometry.kernel_w, geometry.stride_w) : 0;
  const int64_t input =
      ((window ? geometry.stride_w : 1) * block_columns + overlap) * geometry.group_in();
  return kBlockDepth * std::max(input, block_columns * geometry.group_out());
}

size_t OuterPlan::worker_bytes() const {
  const int64_t input_row =
      (geometry.in.w + 2 * geometry.padding_w + geometry.kernel_w) * geometry.group_in();
  const int64_t output_row = geometry.out.w * geometry.group_out();
  const int64_t rows = as_rows || blocks ? 0 : products == Products::kBf16 ? 2 : 1;
  const int64_t runs = geometry.out.h * (blocks && !apart ? static_cast<int64_t>(chunk_units) : 1);
  const int64_t unit = apart ? static_cast<int64_t>(unit_floats()) : 0;
  return padded_bytes(unit) + padded_bytes(delivery_floats()) +
         padded_bytes(outs_at_once() * job_sums()) +
         padded_bytes(rows * std::max(input_row, output_row)) + padded_bytes(block_floats()) +
         padded_bytes(runs * 3);
}

}  // namespace tri::ops
