#include "ops/channel_scale/channel_scale.h"

#include <algorithm>

#include "ops/rows/counts.h"
#include "ops/rows/transform_kernel.h"

namespace tri::ops {

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

}  // namespace tri::ops
