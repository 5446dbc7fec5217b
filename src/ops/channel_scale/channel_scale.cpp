#include "ops/channel_scale/channel_scale.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "base/check.h"
#include "ops/channel_scale/channel_scale_kernel.h"
#include "ops/rows/counts.h"
#include "ops/rows/scratch_floats.h"

namespace tri::ops {
namespace {

using base::ceil_div;

// Rows that are summed in one chain: at least so many that joining them costs little, and a tile
// that stays in L2.
int64_t chain_rows(int64_t channels) { return std::clamp<int64_t>(8192 / channels, 32, 128); }

// Of a job. Where there are few samples, channels are shared out too: theirs are sums of their own.
int64_t block_channels(int64_t samples, int64_t channels) {
  constexpr int64_t kJobs = 16, kLeast = 32;
  return ceil_div(ceil_div(channels, ceil_div(kJobs, samples)), kLeast) * kLeast;
}

// Whether the kernel reads them where they lie.
struct InPlace {
  InPlace(Format x_format, Format grad_format)
      : x(converts_on_load(x_format)),
        grad(converts_on_load(grad_format) &&
             read_together(grad_format, x ? x_format : Format::kF32)) {}
  bool x, grad;
};

// Else decoded into `room`.
RowsAt read_rows(const Stored& stored, const RowRange& range, bool in_place, float* room) {
  if (in_place) return rows_at(stored, range);
  Source plain;
  plain.stored = stored;
  load_rows(plain, range, room, range.channels);
  return {room, Format::kF32, range.channels};
}

}  // namespace

size_t channel_scale_worker_bytes(const RowTiles& tiles) {
  return 2 * tiles.tile_bytes() + padded_bytes(tiles.channels);
}

ChannelScaleCounts channel_scale_backward(const RowTiles& tiles, const GradSource& grad,
                                          const Source& x, const float* factor,
                                          const Sink& input_grad, const Sink& factor_grad,
                                          std::byte* scratch, base::ThreadPool& pool) noexcept {
  CountSum of_input, of_factor;
  const int64_t channels = tiles.channels;
  pool.run(static_cast<size_t>(tiles.samples), [&](size_t sample, size_t worker) {
    std::byte* memory = scratch + worker * channel_scale_worker_bytes(tiles);
    auto* du = reinterpret_cast<float*>(memory);
    auto* value = reinterpret_cast<float*>(memory + tiles.tile_bytes());
    auto* sums = reinterpret_cast<float*>(memory + 2 * tiles.tile_bytes());
    const float* f = factor + static_cast<int64_t>(sample) * channels;
    std::fill_n(sums, channels, 0.0f);
    for (int64_t t = 0; t < tiles.sample_tiles(); ++t) {
      const RowRange range =
          tiles.range(sample * static_cast<size_t>(tiles.sample_tiles()) + static_cast<size_t>(t));
      load_grad_rows(grad, range, du, channels);
      load_rows(x, range, value, channels);
      add_products(du, value, range.count, channels, sums);
      if (input_grad.data == nullptr) continue;
      multiply_rows(f, range.count, channels, du);
      of_input.add(store_rows(input_grad, range, du, channels));
    }
    of_factor.add(
        store_rows(factor_grad, {static_cast<int64_t>(sample), 0, 1, 0, channels}, sums, channels));
  });
  return {of_input.total(), of_factor.total()};
}

size_t channel_scale_sums_worker_bytes(int64_t channels, Format x, Format grad) {
  const InPlace in_place(x, grad);
  const auto decoded = static_cast<size_t>(!in_place.x) + static_cast<size_t>(!in_place.grad);
  return decoded * padded_bytes(chain_rows(channels) * channels) +
         2 * padded_bytes(kScaleSums * channels);
}

StoreCounts channel_scale_sums(int64_t samples, const Stored& grad, const Source& x,
                               const float* mean, const Sink& factor_grad, float* sums,
                               std::byte* scratch, base::ThreadPool& pool) noexcept {
  TRI_CHECK(x.norm.scale != nullptr && x.channel_factor == nullptr && x.sample_factor == nullptr);
  const int64_t channels = x.stored.channels, pixels = x.stored.pixels;
  const int64_t chain = chain_rows(channels), widest = block_channels(samples, channels);
  const int64_t blocks = ceil_div(channels, widest);
  const InPlace in_place(x.stored.format, grad.format);
  const size_t room = channel_scale_sums_worker_bytes(channels, x.stored.format, grad.format);
  CountSum counts;
  pool.run(static_cast<size_t>(samples * blocks), [&](size_t index, size_t worker) {
    const int64_t sample = static_cast<int64_t>(index) / blocks;
    const int64_t first = static_cast<int64_t>(index) % blocks * widest;
    const int64_t some = std::min(widest, channels - first), count = kScaleSums * some;
    ScratchFloats floats(scratch + worker * room);
    float *part = floats.take(count), *all = floats.take(count);
    float* values = floats.take(in_place.x ? 0 : chain * some);
    float* du = floats.take(in_place.grad ? 0 : chain * some);
    std::fill_n(all, count, 0.0f);
    for (int64_t pixel = 0; pixel < pixels; pixel += chain) {
      const RowRange range{sample, pixel, std::min(chain, pixels - pixel), first, some};
      sum_scaled_rows(params_of(x, range), mean + sample / x.norm.ghost * x.norm.stride + first,
                      read_rows(grad, range, in_place.grad, du),
                      read_rows(x.stored, range, in_place.x, values), range.count, some, part);
      add_floats(part, count, all);
    }
    counts.add(store_rows(factor_grad, {sample, 0, 1, first, some}, all, some));
    for (int64_t which = 0; which < kFactoredSums; ++which)
      std::copy_n(all + (1 + which) * some, some,
                  sums + (sample * kFactoredSums + which) * channels + first);
  });
  return counts.total();
}

}  // namespace tri::ops
