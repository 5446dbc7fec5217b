#include "ops/conv2d/depthwise_grad.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "base/check.h"
#include "ops/conv2d/depthwise_kernel.h"
#include "ops/rows/counts.h"
#include "ops/rows/transform_kernel.h"
#include "ops/window/row_ring.h"

namespace tri::ops {
namespace {

using base::ceil_div;

// Enough that joining a unit's sums costs little beside making them.
constexpr int64_t kUnitPositions = 64;
// High enough that the rows at the seam of two strips, which are loaded twice, are few.
constexpr int64_t kStripRows = 32;
// Sums of a chunk: small beside the activations, large beside the cost of two barriers.
constexpr int64_t kChunkBytes = 1 << 20;
// Up to this many floats, slopes left out, a worker holds a whole map instead of a window's rows.
constexpr int64_t kMapFloats = 16 * 1024;

// The rows that a worker holds for one unit and block of channels.
class UnitRows {
 public:
  // `by_slope`: dX is multiplied by the slopes of x. REQUIRES: then the plan has room for them.
  UnitRows(const DepthwiseGradPlan& p, const Source& x, const GradSource& d, bool by_slope,
           std::byte* memory)
      : p_(p),
        g_(p.geometry),
        x_{x, by_slope ? static_cast<int64_t>(in_bytes(p) / sizeof(float)) : 0},
        in_(x_, take_in(memory), p.in_rows, g_.in.h, g_.in.w),
        grad_(d, take(memory, p.grad_rows, g_.out.w), p.grad_rows, g_.out.h, g_.out.w),
        results_(take(memory, 1, g_.in.w)),
        rows_(reinterpret_cast<const float**>(memory)) {}

  void start(int64_t sample, int64_t channel, int64_t channels) {
    sample_ = sample;
    channel_ = channel;
    channels_ = channels;
    in_.start(sample, channel, channels);
    grad_.start(sample, channel, channels);
  }

  // Loads the rows of x that output row y touches. Rings take rows in ascending order, and
  // write_data() may ask for one in the middle of them.
  void load_inputs(int64_t y) {
    const AxisTaps taps = p_.y.taps(y);
    for (int64_t i = 0; i < taps.count; ++i) in_.row(taps.src + i);
  }

  // Adds output row y's part of dW to `sums`, [tap][padded channels].
  void add_weights(int64_t y, float* sums) {
    const AxisTaps taps = p_.y.taps(y);
    const int64_t tap = g_.padded_channels();
    for (int64_t i = 0; i < taps.count; ++i) rows_[i] = in_.row(taps.src + i);
    depthwise_grad_row({rows_, taps.count, in_.pixel(), grad_.row(y), grad_.pixel(),
                        sums + taps.k * g_.kernel_w * tap + channel_, g_.kernel_w * tap, tap,
                        p_.runs.data(), p_.runs.size(), p_.x.src_step, channels_});
  }

  // Writes input row y of dX.
  StoreCounts write_data(int64_t y, const DepthwiseData& data, size_t worker) {
    const AxisTaps taps = p_.back_y.taps(y);
    const int64_t tap = g_.padded_channels(), tap_row = g_.kernel_w * tap;
    for (int64_t i = 0; i < taps.count; ++i) rows_[i] = grad_.row(taps.src + i);
    const Sink& sink = data.dst;
    float* dst = results_;
    int64_t pixel = channels_;
    if (sink.direct()) {
      dst = static_cast<float*>(sink.data) +
            (sample_ * sink.pixels + y * g_.in.w) * sink.row_stride + channel_;
      pixel = sink.row_stride;
    }
    depthwise_row({rows_, taps.count, grad_.pixel(), data.weights + taps.k * tap_row + channel_,
                   p_.back_y.tap_step * tap_row, tap, p_.back_x.tap_step, p_.back_runs.data(),
                   p_.back_runs.size(), p_.back_x.src_step, p_.back_x.dst_step, nullptr, dst, pixel,
                   channels_, x_.slopes == 0 ? nullptr : in_.row(y) + x_.slopes});
    const RowRange range{sample_, y * g_.in.w, g_.in.w, channel_, channels_};
    if (x_.slopes == 0) sink.pass(range, dst, pixel);
    StoreCounts counts;
    if (!sink.direct()) counts = store_rows(sink, range, dst, pixel);
    sink.tell(range, worker);
    return counts;
  }

  // Of the rows of x, without their slopes.
  static size_t in_bytes(const DepthwiseGradPlan& p) {
    return ring_bytes(p.in_rows, p.geometry.in.w, p.tile_channels);
  }

 private:
  float* take_in(std::byte*& memory) const {
    auto* part = reinterpret_cast<float*>(memory);
    memory += (p_.slopes ? 2 : 1) * in_bytes(p_);
    return part;
  }
  float* take(std::byte*& memory, int64_t rows, int64_t width) const {
    auto* part = reinterpret_cast<float*>(memory);
    memory += ring_bytes(rows, width, p_.tile_channels);
    return part;
  }
  const DepthwiseGradPlan& p_;
  const ConvGeometry& g_;
  SlopedSource x_;
  RowRing<SlopedSource> in_;
  RowRing<GradSource> grad_;
  float* results_;
  const float** rows_;
  int64_t sample_ = 0, channel_ = 0, channels_ = 0;
};

// Adds one unit's part of dW for some channels to `sums`; with `data`, writes its rows of dX, each
// as soon as the gradient rows that it needs are there.
StoreCounts sum_unit(const DepthwiseGradPlan& p, const DepthwiseGradPlan::Unit& unit,
                     int64_t channel, const DepthwiseData* data, float* sums, UnitRows& rows,
                     size_t worker) {
  const ConvGeometry& g = p.geometry;
  const int64_t end = unit.row + unit.rows, stride = g.stride_h;
  const int64_t in_end = end == g.out.h ? g.in.h : end * stride;
  StoreCounts counts;
  for (int64_t n = unit.sample; n < unit.sample + unit.samples; ++n) {
    rows.start(n, channel, std::min(p.tile_channels, g.in.c - channel));
    if (data == nullptr) {
      for (int64_t y = unit.row; y < end; ++y) rows.add_weights(y, sums);
      continue;
    }
    for (int64_t y = unit.row * stride; y < in_end; ++y) {
      const bool meets_weights = y % stride == 0 && y / stride < end;
      if (meets_weights) rows.load_inputs(y / stride);
      counts += rows.write_data(y, *data, worker);
      if (meets_weights) rows.add_weights(y / stride, sums);
    }
  }
  return counts;
}

}  // namespace

DepthwiseGradPlan::DepthwiseGradPlan(const ConvGeometry& g, int64_t samples, int64_t ghost,
                                     bool with_slopes)
    : geometry(g),
      y(Pass::kForward, g.in.h, g.out.h, g.kernel_h, g.stride_h, g.padding_h),
      x(Pass::kForward, g.in.w, g.out.w, g.kernel_w, g.stride_w, g.padding_w),
      back_y(Pass::kBackward, g.in.h, g.out.h, g.kernel_h, g.stride_h, g.padding_h),
      back_x(Pass::kBackward, g.in.w, g.out.w, g.kernel_w, g.stride_w, g.padding_w),
      runs(column_runs(x)),
      back_runs(column_runs(back_x)),
      slopes(with_slopes) {
  TRI_CHECK(g.depthwise(), "groups = {}, in = {}, out = {}", g.groups, g.in.text(), g.out.text());
  if (ghost == 0) ghost = samples;
  const int64_t strip = ceil_div(g.out.h, ceil_div(g.out.h, kStripRows));
  int64_t together =
      strip < g.out.h ? 1 : std::clamp<int64_t>(kUnitPositions / g.out.pixels(), 1, ghost);
  together = ceil_div(ghost, ceil_div(ghost, together));
  for (int64_t first = 0; first < samples; first += ghost) {
    const int64_t end = std::min(samples, first + ghost);
    for (int64_t s = first; s < end; s += together)
      for (int64_t row = 0; row < g.out.h; row += strip)
        units.push_back({s, std::min(together, end - s), row, std::min(strip, g.out.h - row)});
  }
  in_rows = std::max<int64_t>(1, y.most_taps());
  grad_rows = std::max<int64_t>(1, back_y.most_taps());
  // Slopes are left out: they are read once, and fewer channels cost more than they do.
  tile_channels = fit_channels(g.in.c, (in_rows + 1) * g.in.w + grad_rows * g.out.w + 2 * g.taps());
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
  return (slopes ? 2 : 1) * ring_bytes(in_rows, geometry.in.w, tile_channels) +
         ring_bytes(grad_rows, geometry.out.w, tile_channels) +
         ring_bytes(1, geometry.in.w, tile_channels) +
         address_bytes(std::max(y.most_taps(), back_y.most_taps()));
}

StoreCounts depthwise_backward_weights(const DepthwiseGradPlan& p, const Source& x,
                                       const GradSource& d, const float* initial,
                                       GradConsumer& consumer, const DepthwiseData* data,
                                       std::byte* scratch, base::ThreadPool& pool) noexcept {
  TRI_CHECK(data == nullptr || p.joins_data());
  const bool by_slope = p.slopes && data != nullptr && data->dst.by_slope();
  CountSum counts;
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
      UnitRows rows(p, x, d, by_slope, workers + worker * p.worker_bytes());
      counts.add(sum_unit(p, p.units[first + unit], channel, data, part, rows, worker));
    });
    pool.run(taps, [&](size_t tap, size_t) {
      const int64_t begin = static_cast<int64_t>(tap) * tap_floats;
      for (size_t unit = 0; unit < chunk; ++unit)
        add_floats(parts + static_cast<int64_t>(unit) * count + begin, tap_floats, sums + begin);
      if (last) consumer.consume(tap, begin, tap_floats, sums + begin);
    });
  }
  return counts.total();
}

}  // namespace tri::ops
