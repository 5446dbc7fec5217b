#include "ops/concat/channel_copy.h"

#include <cstring>

#include "ops/channel_shuffle/shuffle_kernel.h"
#include "ops/rows/counts.h"
#include "ops/rows/result_rows.h"

namespace tri::ops {
namespace {

// Note [Codes as they are]. Numbers that nothing changes on their way into a tensor of their own
// format are moved as they lie: nothing is rounded, so nothing is lost that was not counted when
// they were stored. Formats with a scale are stored anew, because the next scale rests on it.
bool as_they_are(const Stored& from, const Sink& out) {
  return from.format == out.format && !takes_scale(out.format) && !out.accumulate;
}

StoreCounts move_rows(const RowTiles& tiles, const ChannelCopy& copy, const Stored& from,
                      const Sink& out, base::ThreadPool& pool) {
  const size_t bytes = numeric::storage_bytes(out.format);
  pool.run(tiles.tiles(), [&](size_t tile, size_t) {
    const RowRange range = tiles.range(tile);
    const int64_t first = (range.sample * from.pixels + range.pixel) * from.row_stride + copy.from;
    const int64_t result = (range.sample * out.pixels + range.pixel) * out.row_stride + copy.to;
    const auto* src = static_cast<const std::byte*>(from.data) + static_cast<size_t>(first) * bytes;
    auto* dst = static_cast<std::byte*>(out.data) + static_cast<size_t>(result) * bytes;
    if (copy.groups > 1)
      return shuffle_rows({src, from.row_stride, dst, out.row_stride, range.count, copy.channels,
                           copy.groups, bytes});
    const size_t src_row = static_cast<size_t>(from.row_stride) * bytes;
    const size_t dst_row = static_cast<size_t>(out.row_stride) * bytes;
    for (size_t i = 0; i < static_cast<size_t>(range.count); ++i)
      std::memcpy(dst + i * dst_row, src + i * src_row, static_cast<size_t>(copy.channels) * bytes);
  });
  return {};
}

template <class Load>
StoreCounts copy_rows(const RowTiles& tiles, const ChannelCopy& copy, Load load, const Sink& out,
                      std::byte* scratch, base::ThreadPool& pool) {
  CountSum counts;
  pool.run(tiles.tiles(), [&](size_t tile, size_t worker) {
    RowRange range = tiles.range(tile);
    range.channel = copy.from;
    range.channels = copy.channels;
    RowRange written = range;
    written.channel = copy.to;
    auto* room = reinterpret_cast<float*>(scratch + worker * copy_worker_bytes(tiles));
    const ResultRows result(out, written, room);
    if (copy.groups > 1) {
      auto* loaded =
          reinterpret_cast<float*>(reinterpret_cast<std::byte*>(room) + tiles.tile_bytes());
      load(range, loaded, copy.channels);
      shuffle_rows({loaded, copy.channels, result.rows(), result.stride(), range.count,
                    copy.channels, copy.groups, sizeof(float)});
    } else {
      load(range, result.rows(), result.stride());
    }
    counts.add(result.finish());
  });
  return counts.total();
}

}  // namespace

StoreCounts copy_channels(const RowTiles& tiles, const ChannelCopy& copy, const Source& in,
                          const Sink& out, std::byte* scratch, base::ThreadPool& pool) noexcept {
  if (in.plain() && in.gates == nullptr && as_they_are(in.stored, out))
    return move_rows(tiles, copy, in.stored, out, pool);
  const auto load = [&](const RowRange& range, float* rows, int64_t stride) {
    load_rows(in, range, rows, stride);
  };
  return copy_rows(tiles, copy, load, out, scratch, pool);
}

StoreCounts copy_channels_grad(const RowTiles& tiles, const ChannelCopy& copy,
                               const GradSource& grad, const Sink& in, std::byte* scratch,
                               base::ThreadPool& pool) noexcept {
  if (grad.plain() && grad.value.gates == nullptr && as_they_are(grad.grad, in))
    return move_rows(tiles, copy, grad.grad, in, pool);
  const auto load = [&](const RowRange& range, float* rows, int64_t stride) {
    load_grad_rows(grad, range, rows, stride);
  };
  return copy_rows(tiles, copy, load, in, scratch, pool);
}

}  // namespace tri::ops
