#pragma once
// Room: ops. Runs a WindowPlan: loads the source rows of every destination row, lets a kernel
// compute it and stores the result.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"
#include "ops/rows/counts.h"
#include "ops/rows/rows.h"
#include "ops/window/row_ring.h"
#include "ops/window/window_plan.h"

namespace tri::ops {

// One destination row of some channels, as its kernel sees it. Sources and results are fp32.
struct WindowRow {
  int64_t sample, y;
  int64_t channel, channels;
  // Row i of `taps.count` meets tap taps.k + i * plan.y.tap_step; addresses are those of column 0.
  AxisTaps taps;
  const float* const* src;
  int64_t src_pixel;  // floats from one column to the next
  float* dst;
  int64_t dst_pixel;
};

// Calls kernel(const WindowRow&) for every row of dst; it must write all its channels of all
// columns. scratch: pool.threads() * plan.worker_bytes().
template <class S, class Kernel>
StoreCounts slide(const WindowPlan& p, const S& source, const Sink& sink, Kernel kernel,
                  std::byte* scratch, base::ThreadPool& pool) {
  const int64_t blocks = (p.dst.c + p.tile_channels - 1) / p.tile_channels;
  const int64_t strips = (p.dst.h + p.tile_rows - 1) / p.tile_rows;
  CountSum counted;
  pool.run(p.tiles(), [&](size_t index, size_t worker) {
    const auto tile = static_cast<int64_t>(index);
    const int64_t channel = tile % blocks * p.tile_channels;
    const int64_t channels = std::min(p.tile_channels, p.dst.c - channel);
    const int64_t y_begin = tile / blocks % strips * p.tile_rows;
    const int64_t y_end = std::min(p.dst.h, y_begin + p.tile_rows);
    const int64_t n_begin = tile / blocks / strips * p.tile_samples;
    const int64_t n_end = std::min(p.samples, n_begin + p.tile_samples);

    std::byte* memory = scratch + worker * p.worker_bytes();
    RowRing<S> ring(source, reinterpret_cast<float*>(memory), p.ring_rows, p.src.h, p.src.w);
    memory += ring_bytes(p.ring_rows, p.src.w, p.tile_channels);
    auto* results = reinterpret_cast<float*>(memory);
    memory += ring_bytes(1, p.dst.w, p.tile_channels);
    auto** rows = reinterpret_cast<const float**>(memory);

    StoreCounts counts;
    for (int64_t n = n_begin; n < n_end; ++n) {
      ring.start(n, channel, channels);
      for (int64_t y = y_begin; y < y_end; ++y) {
        WindowRow row{n, y, channel, channels, p.y.taps(y), rows, ring.pixel(), results, channels};
        for (int64_t i = 0; i < row.taps.count; ++i) rows[i] = ring.row(row.taps.src + i);
        if (sink.direct()) {
          row.dst = static_cast<float*>(sink.data) +
                    (n * sink.pixels + y * p.dst.w) * sink.row_stride + channel;
          row.dst_pixel = sink.row_stride;
        }
        kernel(row);
        const RowRange range{n, y * p.dst.w, p.dst.w, channel, channels};
        sink.pass(range, row.dst, row.dst_pixel);
        if (!sink.direct()) counts += store_rows(sink, range, row.dst, row.dst_pixel);
        sink.tell(range, worker);
      }
    }
    counted.add(counts);
  });
  return counted.total();
}

}  // namespace tri::ops
