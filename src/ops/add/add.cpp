#include "ops/add/add.h"

#include <iterator>

#include "base/check.h"
#include "ops/rows/counts.h"
#include "ops/rows/transform_kernel.h"

namespace tri::ops {

StoreCounts add_forward(const RowTiles& tiles, std::span<const Source> inputs, const Sink& out,
                        std::byte* scratch, base::ThreadPool& pool) noexcept {
  CountSum counts;
  pool.run(tiles.tiles(), [&](size_t tile, size_t worker) {
    const RowRange range = tiles.range(tile);
    const int64_t n = range.count * range.channels;
    auto* sum = reinterpret_cast<float*>(scratch + worker * add_worker_bytes(tiles));
    auto* next = reinterpret_cast<float*>(reinterpret_cast<std::byte*>(sum) + tiles.tile_bytes());
    load_rows(inputs.front(), range, sum, range.channels);
    for (const Source& input : inputs.subspan(1)) {
      load_rows(input, range, next, range.channels);
      add_floats(next, n, sum);
    }
    counts.add(store_rows(out, range, sum, range.channels));
  });
  return counts.total();
}

StoreCounts add_backward(const RowTiles& tiles, const GradSource& grad,
                         std::span<const Sink> inputs, std::span<StoreCounts> lost,
                         std::byte* scratch, base::ThreadPool& pool) noexcept {
  CountSum counts[4];
  TRI_CHECK(inputs.size() <= std::size(counts), "{} sinks", inputs.size());
  pool.run(tiles.tiles(), [&](size_t tile, size_t worker) {
    const RowRange range = tiles.range(tile);
    auto* rows = reinterpret_cast<float*>(scratch + worker * add_worker_bytes(tiles));
    load_grad_rows(grad, range, rows, range.channels);
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i].data != nullptr)
        counts[i].add(store_rows(inputs[i], range, rows, range.channels));
  });
  StoreCounts all;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i < lost.size()) lost[i] = counts[i].total();
    all += counts[i].total();
  }
  return all;
}

}  // namespace tri::ops
