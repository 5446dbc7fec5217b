#include "ops/dropout/dropout.h"

#include "base/philox.h"
#include "ops/dropout/dropout_kernel.h"
#include "ops/rows/counts.h"

namespace tri::ops {
namespace {

// Multiplies elements [first, first + count) of one sample by 0 or 1 / (1 - rate).
void apply(const DropoutMask& mask, int64_t sample, int64_t first, int64_t count, float* values) {
  const base::Stream stream(mask.seed, base::Purpose::kDropout, mask.samples[sample], mask.layer);
  const base::Philox::Words words = stream.block(0);
  drop({{words[0], words[1]},
        static_cast<uint32_t>(first),
        dropout_threshold(mask.rate),
        1.0f / (1.0f - mask.rate),
        values,
        count});
}

template <class Load>
StoreCounts masked(const RowTiles& tiles, const DropoutMask& mask, Load load, const Sink& out,
                   std::byte* scratch, base::ThreadPool& pool) {
  CountSum counts;
  pool.run(tiles.tiles(), [&](size_t tile, size_t worker) {
    const RowRange range = tiles.range(tile);
    auto* rows = reinterpret_cast<float*>(scratch + worker * dropout_worker_bytes(tiles));
    load(range, rows);
    apply(mask, range.sample, range.pixel * range.channels, range.count * range.channels, rows);
    counts.add(store_rows(out, range, rows, range.channels));
  });
  return counts.total();
}

}  // namespace

StoreCounts dropout_forward(const RowTiles& tiles, const DropoutMask& mask, const Source& in,
                            const Sink& out, std::byte* scratch, base::ThreadPool& pool) noexcept {
  const auto load = [&](const RowRange& r, float* rows) { load_rows(in, r, rows, r.channels); };
  return masked(tiles, mask, load, out, scratch, pool);
}

StoreCounts dropout_backward(const RowTiles& tiles, const DropoutMask& mask, const GradSource& grad,
                             const Sink& in, std::byte* scratch, base::ThreadPool& pool) noexcept {
  const auto load = [&](const RowRange& r, float* rows) {
    load_grad_rows(grad, r, rows, r.channels);
  };
  return masked(tiles, mask, load, in, scratch, pool);
}

}  // namespace tri::ops
