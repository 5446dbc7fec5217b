#include "ops/concat/channel_copy.h"

#include "ops/rows/counts.h"

namespace tri::ops {
namespace {

void shuffle(const float* src, int64_t rows, int64_t channels, int64_t groups, float* dst) {
  const int64_t each = channels / groups;
  for (int64_t row = 0; row < rows; ++row, src += channels, dst += channels)
    for (int64_t g = 0; g < groups; ++g)
      for (int64_t i = 0; i < each; ++i) dst[i * groups + g] = src[g * each + i];
}

template <class Load>
StoreCounts copy_rows(const RowTiles& tiles, const ChannelCopy& copy, Load load, const Sink& out,
                      std::byte* scratch, base::ThreadPool& pool) {
  CountSum counts;
  pool.run(tiles.tiles(), [&](size_t tile, size_t worker) {
    RowRange range = tiles.range(tile);
    range.channel = copy.from;
    range.channels = copy.channels;
    auto* rows = reinterpret_cast<float*>(scratch + worker * copy_worker_bytes(tiles));
    load(range, rows);
    if (copy.groups > 1) {
      auto* turned =
          reinterpret_cast<float*>(reinterpret_cast<std::byte*>(rows) + tiles.tile_bytes());
      shuffle(rows, range.count, copy.channels, copy.groups, turned);
      rows = turned;
    }
    range.channel = copy.to;
    counts.add(store_rows(out, range, rows, copy.channels));
  });
  return counts.total();
}

}  // namespace

StoreCounts copy_channels(const RowTiles& tiles, const ChannelCopy& copy, const Source& in,
                          const Sink& out, std::byte* scratch, base::ThreadPool& pool) noexcept {
  const auto load = [&](const RowRange& range, float* rows) {
    load_rows(in, range, rows, copy.channels);
  };
  return copy_rows(tiles, copy, load, out, scratch, pool);
}

StoreCounts copy_channels_grad(const RowTiles& tiles, const ChannelCopy& copy,
                               const GradSource& grad, const Sink& in, std::byte* scratch,
                               base::ThreadPool& pool) noexcept {
  const auto load = [&](const RowRange& range, float* rows) {
    load_grad_rows(grad, range, rows, copy.channels);
  };
  return copy_rows(tiles, copy, load, in, scratch, pool);
}

}  // namespace tri::ops
