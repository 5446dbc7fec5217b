#include "ops/global_avg_pool/global_pool.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "ops/global_avg_pool/global_pool_kernel.h"
#include "ops/rows/counts.h"
#include "ops/rows/transform_kernel.h"
#include "ops/window/row_ring.h"

namespace tri::ops {
namespace {

// Up to this many floats a map is loaded in one call.
constexpr int64_t kMapFloats = 16 * 1024;

// Calls body(sample, channel, channels, vector, rows, worker) for every tile: `vector` has room for
// the channels, `rows` for ring_rows rows of them. Returns what the bodies lost.
template <class Body>
StoreCounts for_each_tile(const GlobalPoolPlan& p, std::byte* scratch, base::ThreadPool& pool,
                          Body body) {
  const int64_t blocks = (p.in.c + p.tile_channels - 1) / p.tile_channels;
  CountSum counted;
  pool.run(p.tiles(), [&](size_t index, size_t worker) {
    const auto tile = static_cast<int64_t>(index);
    const int64_t channel = tile % blocks * p.tile_channels;
    std::byte* memory = scratch + worker * p.worker_bytes();
    counted.add(body(tile / blocks, channel, std::min(p.tile_channels, p.in.c - channel),
                     reinterpret_cast<float*>(memory),
                     reinterpret_cast<float*>(memory + ring_bytes(1, 1, p.tile_channels)), worker));
  });
  return counted.total();
}

void scale(float* values, int64_t count, float factor) {
  TransformParams params;
  params.sample_factor = factor;
  transform_rows(params, {values, Format::kF32, count}, values, count, 1, count);
}

}  // namespace

GlobalPoolPlan::GlobalPoolPlan(const tensor::Shape& shape, int64_t count)
    : in(shape),
      samples(count),
      tile_channels(fit_channels(in.c, in.w)),
      ring_rows(in.pixels() * tile_channels <= kMapFloats ? in.h : 1) {}

size_t GlobalPoolPlan::tiles() const {
  return static_cast<size_t>(samples * ((in.c + tile_channels - 1) / tile_channels));
}

size_t GlobalPoolPlan::worker_bytes() const {
  return ring_bytes(1, 1, tile_channels) + ring_bytes(ring_rows, in.w, tile_channels);
}

StoreCounts global_pool_forward(const GlobalPoolPlan& p, const Source& src, const Sink& dst,
                                std::byte* scratch, base::ThreadPool& pool) noexcept {
  const float share = 1.0f / static_cast<float>(p.in.pixels());
  return for_each_tile(
      p, scratch, pool,
      [&](int64_t n, int64_t channel, int64_t channels, float* sums, float* rows, size_t) {
        RowRing<Source> ring(src, rows, p.ring_rows, p.in.h, p.in.w);
        ring.start(n, channel, channels);
        std::fill_n(sums, channels, 0.0f);
        for (int64_t y = 0; y < p.in.h; ++y)
          add_pixels(ring.row(y), ring.pixel(), p.in.w, channels, sums);
        scale(sums, channels, share);
        return store_rows(dst, {n, 0, 1, channel, channels}, sums, channels);
      });
}

StoreCounts global_pool_backward(const GlobalPoolPlan& p, const GradSource& src, const Sink& dst,
                                 std::byte* scratch, base::ThreadPool& pool) noexcept {
  const float share = 1.0f / static_cast<float>(p.in.pixels());
  return for_each_tile(
      p, scratch, pool,
      [&](int64_t n, int64_t channel, int64_t channels, float* grad, float* row, size_t worker) {
        load_grad_rows(src, {n, 0, 1, channel, channels}, grad, channels);
        scale(grad, channels, share);
        for (int64_t x = 0; x < p.in.w; ++x) std::copy_n(grad, channels, row + x * channels);
        StoreCounts counts;
        for (int64_t y = 0; y < p.in.h; ++y) {
          const RowRange range{n, y * p.in.w, p.in.w, channel, channels};
          counts += store_rows(dst, range, row, channels);
          dst.tell(range, worker);
        }
        return counts;
      });
}

void global_pool_addend(const tensor::Shape& in, int64_t samples, const GradSource& src,
                        float* addend, base::ThreadPool& pool) noexcept {
  const float share = 1.0f / static_cast<float>(in.pixels());
  constexpr int64_t kTileFloats = 16 * 1024;
  const int64_t tile = std::max<int64_t>(1, kTileFloats / in.c);
  pool.run(static_cast<size_t>(base::ceil_div(samples, tile)), [&](size_t index, size_t) {
    const int64_t first = static_cast<int64_t>(index) * tile, end = std::min(samples, first + tile);
    for (int64_t n = first; n < end; ++n)
      load_grad_rows(src, {n, 0, 1, 0, in.c}, addend + n * in.c, in.c);
    scale(addend + first * in.c, (end - first) * in.c, share);
  });
}

}  // namespace tri::ops
