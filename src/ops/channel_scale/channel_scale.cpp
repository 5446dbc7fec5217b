#include "ops/channel_scale/channel_scale.h"

#include <algorithm>

#include "ops/batch_norm/norm.h"
#include "ops/channel_scale/channel_scale_kernel.h"
#include "ops/rows/counts.h"
#include "ops/rows/transform_kernel.h"

namespace tri::ops {
namespace {

static_assert(kScaleSums == 1 + kFactoredSums);

// Rows that are summed in one chain: at least so many that joining them costs little, and a tile
// that stays in L2.
int64_t chain_rows(int64_t channels) { return std::clamp<int64_t>(8192 / channels, 32, 128); }

int64_t whole_lines(int64_t floats) { return (floats + 15) / 16 * 16; }

// Where they lie if the kernel can read them there, else decoded into `room`.
RowsAt read_rows(const Stored& stored, const RowRange& range, bool in_place, float* room) {
  if (in_place) return rows_at(stored, range);
  Source plain;
  plain.stored = stored;
  load_rows(plain, range, room, range.channels);
  return {room, Format::kF32, range.channels};
}

}  // namespace

size_t channel_scale_worker_bytes(const RowTiles& tiles) {
  return 2 * tiles.tile_bytes() + static_cast<size_t>((tiles.channels + 15) / 16) * 64;
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

size_t channel_scale_sums_worker_bytes(int64_t channels) {
  return static_cast<size_t>(2 * whole_lines(chain_rows(channels) * channels) +
                             2 * whole_lines(kScaleSums * channels)) *
         sizeof(float);
}

StoreCounts channel_scale_sums(int64_t samples, const Stored& grad, const Source& x,
                               const float* mean, const Sink& factor_grad, float* sums,
                               std::byte* scratch, base::ThreadPool& pool) noexcept {
  const int64_t channels = x.stored.channels, pixels = x.stored.pixels;
  const int64_t chain = chain_rows(channels), count = kScaleSums * channels;
  const bool x_in_place = converts_on_load(x.stored.format);
  const Format x_read = x_in_place ? x.stored.format : Format::kF32;
  const bool grad_in_place = converts_on_load(grad.format) && read_together(grad.format, x_read);
  CountSum counts;
  pool.run(static_cast<size_t>(samples), [&](size_t index, size_t worker) {
    const auto sample = static_cast<int64_t>(index);
    auto* du =
        reinterpret_cast<float*>(scratch + worker * channel_scale_sums_worker_bytes(channels));
    float* values = du + whole_lines(chain * channels);
    float* part = values + whole_lines(chain * channels);
    float* all = part + whole_lines(count);
    std::fill_n(all, count, 0.0f);
    for (int64_t pixel = 0; pixel < pixels; pixel += chain) {
      const RowRange range{sample, pixel, std::min(chain, pixels - pixel), 0, channels};
      sum_scaled_rows(params_of(x, range), mean + sample / x.norm.ghost * x.norm.stride,
                      read_rows(grad, range, grad_in_place, du),
                      read_rows(x.stored, range, x_in_place, values), range.count, channels, part);
      add_floats(part, count, all);
    }
    counts.add(store_rows(factor_grad, {sample, 0, 1, 0, channels}, all, channels));
    std::copy_n(all + channels, kFactoredSums * channels, sums + sample * kFactoredSums * channels);
  });
  return counts.total();
}

}  // namespace tri::ops
