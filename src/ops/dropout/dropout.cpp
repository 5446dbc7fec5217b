#include "ops/dropout/dropout.h"

#include <algorithm>

#include "base/philox.h"
#include "ops/dropout/dropout_kernel.h"
#include "ops/rows/counts.h"
#include "ops/rows/result_rows.h"

namespace tri::ops {
namespace {

constexpr int64_t kMaskedFloats = 2048;

// Multiplies the elements of whole rows of one sample by 0 or 1 / (1 - rate).
void apply(const DropoutMask& mask, const RowRange& range, float* rows, int64_t stride) {
  const base::Stream stream(mask.seed, base::Purpose::kDropout, mask.samples[range.sample],
                            mask.layer);
  const base::Philox::Words words = stream.block(0);
  const bool together = stride == range.channels;
  const int64_t runs = together ? 1 : range.count;
  const int64_t count = together ? range.count * range.channels : range.channels;
  for (int64_t i = 0; i < runs; ++i)
    drop({{words[0], words[1]},
          static_cast<uint32_t>((range.pixel + i) * range.channels),
          dropout_threshold(mask.rate),
          1.0f / (1.0f - mask.rate),
          rows + i * stride,
          count});
}

template <class Load>
StoreCounts masked(const RowTiles& tiles, const DropoutMask& mask, Load load, const Sink& out,
                   std::byte* scratch, base::ThreadPool& pool) {
  CountSum counts;
  pool.run(tiles.tiles(), [&](size_t tile, size_t worker) {
    const RowRange range = tiles.range(tile);
    const ResultRows result(
        out, range, reinterpret_cast<float*>(scratch + worker * dropout_worker_bytes(tiles)));
    // Some rows at a time, so that they are still in L1 when they are masked.
    const int64_t some = std::max<int64_t>(1, kMaskedFloats / range.channels);
    for (RowRange part = range; part.pixel < range.pixel + range.count; part.pixel += some) {
      part.count = std::min(some, range.pixel + range.count - part.pixel);
      float* rows = result.rows() + (part.pixel - range.pixel) * result.stride();
      load(part, rows, result.stride());
      apply(mask, part, rows, result.stride());
    }
    counts.add(result.finish());
  });
  return counts.total();
}

}  // namespace

StoreCounts dropout_forward(const RowTiles& tiles, const DropoutMask& mask, const Source& in,
                            const Sink& out, std::byte* scratch, base::ThreadPool& pool) noexcept {
  const auto load = [&](const RowRange& r, float* rows, int64_t stride) {
    load_rows(in, r, rows, stride);
  };
  return masked(tiles, mask, load, out, scratch, pool);
}

StoreCounts dropout_backward(const RowTiles& tiles, const DropoutMask& mask, const GradSource& grad,
                             const Sink& in, std::byte* scratch, base::ThreadPool& pool) noexcept {
  const auto load = [&](const RowRange& r, float* rows, int64_t stride) {
    load_grad_rows(grad, r, rows, stride);
  };
  return masked(tiles, mask, load, in, scratch, pool);
}

}  // namespace tri::ops
