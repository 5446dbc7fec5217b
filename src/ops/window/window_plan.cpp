#include "ops/window/window_plan.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "ops/window/row_ring.h"

namespace tri::ops {
namespace {

using base::ceil_div;
int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -ceil_div(-a, b); }

// Most of a 512 KiB L2; the streams to and from memory pass through the rest. Whole rows of all
// channels are read from memory faster than parts of them.
constexpr int64_t kCacheFloats = 80 * 1024;
// Channels of a tile come in multiples of it: whole cache lines in every format.
constexpr int64_t kChannelStep = 64;
// Enough for uneven cores.
constexpr int64_t kWantedTiles = 16;
// A tile below this many results costs less than its share of the pool's work.
constexpr int64_t kTileFloats = 16 * 1024;

}  // namespace

Window window_of(const Attributes& a, const Shape& in, const Shape& out) {
  return {in, out, a.kernel_h, a.kernel_w, a.stride_h, a.stride_w, a.padding_h, a.padding_w};
}

WindowAxis::WindowAxis(Pass direction, int64_t in, int64_t out, int64_t size, int64_t step,
                       int64_t border)
    : pass(direction),
      src(pass == Pass::kForward ? in : out),
      dst(pass == Pass::kForward ? out : in),
      kernel(size),
      stride(step),
      padding(border),
      tap_step(pass == Pass::kForward ? 1 : -stride),
      src_step(pass == Pass::kForward ? stride : 1),
      dst_step(pass == Pass::kForward ? 1 : stride) {}

AxisTaps WindowAxis::taps(int64_t index) const {
  if (pass == Pass::kForward) {
    const int64_t first = index * stride - padding;
    const int64_t begin = std::max<int64_t>(0, -first), end = std::min(kernel, src - first);
    return {first + begin, begin, std::max<int64_t>(0, end - begin)};
  }
  const int64_t at = index + padding;  // source s meets tap at - s * stride
  const int64_t begin = std::max<int64_t>(0, floor_div(at - kernel, stride) + 1);
  const int64_t end = std::min(src, floor_div(at, stride) + 1);
  return {begin, at - begin * stride, std::max<int64_t>(0, end - begin)};
}

int64_t WindowAxis::most_taps() const {
  return std::min(src, pass == Pass::kForward ? kernel : ceil_div(kernel, stride));
}

std::vector<ColumnRun> column_runs(const WindowAxis& axis) {
  std::vector<ColumnRun> runs;
  for (int64_t phase = 0; phase < std::min(axis.dst_step, axis.dst); ++phase) {
    bool fresh = true;
    for (int64_t d = phase; d < axis.dst; d += axis.dst_step) {
      const AxisTaps t = axis.taps(d);
      const bool same =
          !fresh && t.count == runs.back().taps &&
          (t.count == 0 ||
           (t.k == runs.back().k && t.src == runs.back().src + runs.back().count * axis.src_step));
      if (same) {
        ++runs.back().count;
        continue;
      }
      runs.push_back({static_cast<int32_t>(d), 1, static_cast<int32_t>(t.src),
                      static_cast<int32_t>(t.k), static_cast<int32_t>(t.count)});
      fresh = false;
    }
  }
  return runs;
}

WindowPlan::WindowPlan(const Window& w, Pass direction, int64_t count, int64_t row_floats)
    : window(w),
      pass(direction),
      samples(count),
      src(pass == Pass::kForward ? w.in : w.out),
      dst(pass == Pass::kForward ? w.out : w.in),
      y(pass, w.in.h, w.out.h, w.kernel_h, w.stride_h, w.padding_h),
      x(pass, w.in.w, w.out.w, w.kernel_w, w.stride_w, w.padding_w),
      runs(column_runs(x)) {
  const int64_t channels = dst.c;
  ring_rows = std::max<int64_t>(1, y.most_taps());
  tile_channels = fit_channels(channels, ring_rows * src.w + dst.w + row_floats);
  const int64_t blocks = ceil_div(channels, tile_channels);
  tile_rows = dst.h;
  if (src.pixels() * tile_channels <= kCacheFloats) {
    ring_rows = src.h;
  } else {
    // At least four rows: those at the seam of two strips are loaded twice.
    const int64_t strips =
        std::clamp<int64_t>(kWantedTiles / (samples * blocks), 1, std::max<int64_t>(1, dst.h / 4));
    tile_rows = ceil_div(dst.h, strips);
  }
  const int64_t together = kTileFloats / (tile_rows * dst.w * tile_channels);
  tile_samples =
      std::clamp<int64_t>(together, 1, std::max<int64_t>(1, samples * blocks / kWantedTiles));
}

int64_t fit_channels(int64_t channels, int64_t floats_per_channel) {
  const int64_t most = kCacheFloats / floats_per_channel / kChannelStep * kChannelStep;
  const int64_t blocks = ceil_div(channels, std::max(kChannelStep, most));
  return std::min(channels, ceil_div(ceil_div(channels, blocks), kChannelStep) * kChannelStep);
}

size_t WindowPlan::tiles() const {
  return static_cast<size_t>(ceil_div(samples, tile_samples) * ceil_div(dst.h, tile_rows) *
                             ceil_div(dst.c, tile_channels));
}

size_t WindowPlan::worker_bytes() const {
  return ring_bytes(ring_rows, src.w, tile_channels) + ring_bytes(1, dst.w, tile_channels) +
         address_bytes(y.most_taps());
}

}  // namespace tri::ops
