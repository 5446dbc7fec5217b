#include "ops/conv2d/depthwise_grad.h"

#include <algorithm>

#include "base/check.h"
#include "ops/conv2d/depthwise_kernel.h"
#include "ops/rows/transform_kernel.h"
#include "ops/window/row_ring.h"

namespace tri::ops {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Enough that joining a unit's sums costs little beside making them.
constexpr int64_t kUnitPositions = 256;
// High enough that the rows at the seam of two strips, which are loaded twice, are few.
constexpr int64_t kStripRows = 32;
// Sums of a chunk: small beside the activations, large beside the cost of two barriers.
constexpr int64_t kChunkBytes = 1 << 20;
// Up to this many floats a worker holds a whole map instead of a window's rows.
constexpr int64_t kMapFloats = 16 * 1024;

// Adds one unit's sums for some channels into `sums`, [tap][padded channels].
void sum_unit(const DepthwiseGradPlan& p, const DepthwiseGradPlan::Unit& unit, int64_t channel,
              const Source& x, const GradSource& d, float* sums, std::byte* memory) {
  const ConvGeometry& g = p.geometry;
  const int64_t channels = std::min(p.tile_channels, g.in.c - channel), tap = g.padded_channels();
  RowRing<Source> in(x, reinterpret_cast<float*>(memory), p.in_rows, g.in.h, g.in.w);
  memory += ring_bytes(p.in_rows, g.in.w, p.tile_channels);
  RowRing<GradSource> grad(d, reinterpret_cast<float*>(memory), p.grad_rows, g.out.h, g.out.w);
  memory += ring_bytes(p.grad_rows, g.out.w, p.tile_channels);
  auto** rows = reinterpret_cast<const float**>(memory);
  for (int64_t n = unit.sample; n < unit.sample + unit.samples; ++n) {
    in.start(n, channel, channels);
    grad.start(n, channel, channels);
    for (int64_t y = unit.row; y < unit.row + unit.rows; ++y) {
      const AxisTaps taps = p.y.taps(y);
      for (int64_t i = 0; i < taps.count; ++i) rows[i] = in.row(taps.src + i);
      depthwise_grad_row({rows, taps.count, in.pixel(), grad.row(y), grad.pixel(),
                          sums + taps.k * g.kernel_w * tap + channel, g.kernel_w * tap, tap,
                          p.runs.data(), p.runs.size(), p.x.src_step, channels});
    }
  }
}

}  // namespace

DepthwiseGradPlan::DepthwiseGradPlan(const ConvGeometry& g, int64_t samples, int64_t ghost)
    : geometry(g),
      y(Pass::kForward, g.in.h, g.out.h, g.kernel_h, g.stride_h, g.padding_h),
      x(Pass::kForward, g.in.w, g.out.w, g.kernel_w, g.stride_w, g.padding_w),
      runs(column_runs(x)) {
  TRI_CHECK(g.depthwise(), "groups = {}, in = {}, out = {}", g.groups, g.in.text(), g.out.text());
  if (ghost == 0) ghost = samples;
  const int64_t strip = ceil_div(g.out.h, ceil_div(g.out.h, kStripRows));
  const int64_t together =
      strip < g.out.h ? 1 : std::clamp<int64_t>(kUnitPositions / g.out.pixels(), 1, ghost);
  for (int64_t first = 0; first < samples; first += ghost) {
    const int64_t end = std::min(samples, first + ghost);
    for (int64_t s = first; s < end; s += together)
      for (int64_t row = 0; row < g.out.h; row += strip)
        units.push_back({s, std::min(together, end - s), row, std::min(strip, g.out.h - row)});
  }
  in_rows = std::max<int64_t>(1, y.most_taps());
  tile_channels = fit_channels(g.in.c, in_rows * g.in.w + g.out.w + g.taps());
  grad_rows = 1;
  if (strip == g.out.h && (g.in.pixels() + g.out.pixels()) * tile_channels <= kMapFloats) {
    in_rows = g.in.h;
    grad_rows = g.out.h;
  }
  const auto unit_bytes = static_cast<int64_t>(sizeof(float)) * g.weight_count();
  chunk_units =
      std::min(units.size(), static_cast<size_t>(std::max<int64_t>(1, kChunkBytes / unit_bytes)));
}

size_t DepthwiseGradPlan::shared_bytes() const {
  return (1 + chunk_units) * static_cast<size_t>(geometry.weight_count()) * sizeof(float);
}

size_t DepthwiseGradPlan::worker_bytes() const {
  return ring_bytes(in_rows, geometry.in.w, tile_channels) +
         ring_bytes(grad_rows, geometry.out.w, tile_channels) + address_bytes(y.most_taps());
}

void depthwise_backward_weights(const DepthwiseGradPlan& p, const Source& x, const GradSource& d,
                                const float* initial, GradConsumer& consumer, std::byte* scratch,
                                base::ThreadPool& pool) noexcept {
  const int64_t count = p.geometry.weight_count(), tap_floats = p.geometry.padded_channels();
  const auto taps = static_cast<size_t>(p.geometry.taps());
  auto* sums = reinterpret_cast<float*>(scratch);
  float* parts = sums + count;
  std::byte* workers = scratch + p.shared_bytes();
  if (initial != nullptr)
    std::copy_n(initial, count, sums);
  else
    std::fill_n(sums, count, 0.0f);
  const auto blocks = static_cast<size_t>(ceil_div(p.geometry.in.c, p.tile_channels));
  for (size_t first = 0; first < p.units.size(); first += p.chunk_units) {
    const size_t chunk = std::min(p.chunk_units, p.units.size() - first);
    const bool last = first + chunk == p.units.size();
    pool.run(chunk * blocks, [&](size_t tile, size_t worker) {
      const size_t unit = tile / blocks;
      const int64_t channel = static_cast<int64_t>(tile % blocks) * p.tile_channels;
      float* part = parts + static_cast<int64_t>(unit) * count;
      // The last block clears the padding too.
      const int64_t end = tile % blocks + 1 == blocks ? tap_floats : channel + p.tile_channels;
      for (size_t tap = 0; tap < taps; ++tap) {
        float* row = part + static_cast<int64_t>(tap) * tap_floats;
        std::fill(row + channel, row + end, 0.0f);
      }
      sum_unit(p, p.units[first + unit], channel, x, d, part, workers + worker * p.worker_bytes());
    });
    pool.run(taps, [&](size_t tap, size_t) {
      const int64_t begin = static_cast<int64_t>(tap) * tap_floats;
      for (size_t unit = 0; unit < chunk; ++unit)
        add_floats(parts + static_cast<int64_t>(unit) * count + begin, tap_floats, sums + begin);
      if (last) consumer.consume(tap, begin, tap_floats, sums + begin);
    });
  }
}

}  // namespace tri::ops
