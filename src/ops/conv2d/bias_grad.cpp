#include "ops/conv2d/bias_grad.h"

#include <algorithm>

#include "ops/rows/transform_kernel.h"

namespace tri::ops {
namespace {
constexpr int64_t kChannels = 64;  // of one tile
constexpr int64_t kRows = 64;      // loaded at a time
}  // namespace

size_t bias_grad_worker_bytes() { return kChannels * (kRows + 1) * sizeof(float); }

void bias_grad(int64_t samples, int64_t pixels, int64_t channels, const GradSource& grad,
               float* sums, std::byte* scratch, base::ThreadPool& pool) noexcept {
  const auto tiles = static_cast<size_t>((channels + kChannels - 1) / kChannels);
  pool.run(tiles, [&](size_t tile, size_t worker) {
    auto* rows = reinterpret_cast<float*>(scratch + worker * bias_grad_worker_bytes());
    float* sample_sum = rows + kChannels * kRows;
    const int64_t first = static_cast<int64_t>(tile) * kChannels;
    const int64_t count = std::min(kChannels, channels - first);
    if (pixels == 1 && grad.value.norm.scale == nullptr && grad.alike()) {  // a sample is a row
      for (int64_t n = 0; n < samples; n += kRows) {
        const int64_t some = std::min(kRows, samples - n);
        load_grad_rows(grad, {n, 0, some, first, count}, rows, count);
        for (int64_t i = 0; i < some; ++i) add_floats(rows + i * count, count, sums + first);
      }
      return;
    }
    for (int64_t n = 0; n < samples; ++n) {
      std::fill_n(sample_sum, count, 0.0f);
      for (int64_t pixel = 0; pixel < pixels; pixel += kRows) {
        const int64_t some = std::min(kRows, pixels - pixel);
        load_grad_rows(grad, {n, pixel, some, first, count}, rows, count);
        for (int64_t i = 0; i < some; ++i) add_floats(rows + i * count, count, sample_sum);
      }
      add_floats(sample_sum, count, sums + first);
    }
  });
}

}  // namespace tri::ops
