#include "ops/dropout/dropout.h"

#include <algorithm>

#include "base/philox.h"
#include "ops/dropout/dropout_kernel.h"
#include "ops/rows/counts.h"
#include "ops/rows/result_rows.h"

namespace tri::ops {
namespace {

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

// Calls body(RowRange) for so few rows of a range at a time that they are still in L1 when they are
// masked and stored.
template <class Body>
void for_pieces(const RowRange& range, Body body) {
  constexpr int64_t kMaskedFloats = 2048;
  const int64_t some = std::max<int64_t>(1, kMaskedFloats / range.channels);
  RowRange piece = range;
  for (int64_t done = 0; done < range.count; done += some) {
    piece.pixel = range.pixel + done;
    piece.count = std::min(some, range.count - done);
    body(piece);
  }
}

template <class Load>
StoreCounts masked(const RowTiles& tiles, const DropoutMask& mask, Load load, const Sink& out,
                   std::byte* scratch, base::ThreadPool& pool) {
  CountSum counts;
  pool.run(tiles.tiles(), [&](size_t tile, size_t worker) {
    auto* room = reinterpret_cast<float*>(scratch + worker * dropout_worker_bytes(tiles));
    StoreCounts lost;
    for_pieces(tiles.range(tile), [&](const RowRange& piece) {
      const ResultRows result(out, piece, room);
      load(piece, result.rows(), result.stride());
      apply(mask, piece, result.rows(), result.stride());
      lost += result.finish();
    });
    counts.add(lost);
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
