#include "ops/add/add.h"

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
                         std::span<const Sink> inputs, std::byte* scratch,
                         base::ThreadPool& pool) noexcept {
  CountSum counts;
  pool.run(tiles.tiles(), [&](size_t tile, size_t worker) {
    const RowRange range = tiles.range(tile);
    auto* rows = reinterpret_cast<float*>(scratch + worker * add_worker_bytes(tiles));
    load_grad_rows(grad, range, rows, range.channels);
    for (const Sink& input : inputs)
      if (input.data != nullptr) counts.add(store_rows(input, range, rows, range.channels));
  });
  return counts.total();
}

}  // namespace tri::ops
