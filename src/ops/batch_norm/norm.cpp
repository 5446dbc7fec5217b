#include "ops/batch_norm/norm.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ops/batch_norm/norm_kernel.h"
#include "ops/rows/counts.h"

namespace tri::ops {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A tile of rows is read twice: it should stay in L2, and be long beside the joining of its sums.
constexpr int64_t kTileFloats = 24 * 1024;
// fp32 chains stay short; longer sums are joined in double precision.
constexpr int64_t kTileRows = 128;

// Channels that one worker joins at a time: a cache line of every tile's sums.
constexpr int64_t kJoinChannels = 16;
using JoinSums = std::array<double, kJoinChannels>;

// Calls join(first channel, channels) for blocks of channels, on the pool.
template <class Join>
void for_channel_blocks(const NormPlan& plan, base::ThreadPool& pool, Join join) {
  const auto blocks = static_cast<size_t>(ceil_div(plan.channels, kJoinChannels));
  pool.run(blocks, [&](size_t block, size_t) {
    const int64_t first = static_cast<int64_t>(block) * kJoinChannels;
    join(first, std::min(plan.channels - first, kJoinChannels));
  });
}

struct Tile {
  Tile(const NormPlan& plan, size_t index) {
    ghost = static_cast<int64_t>(index) / plan.ghost_tiles;
    const int64_t begin = static_cast<int64_t>(index) % plan.ghost_tiles * plan.tile_rows;
    count = std::clamp<int64_t>(plan.ghost_rows(ghost) - begin, 0, plan.tile_rows);
    row = ghost * plan.ghost * plan.pixels + begin;
  }
  int64_t ghost;
  int64_t row;    // over all samples
  int64_t count;  // 0 behind the end of a last, smaller ghost batch
};

// The two sums of every tile: [tile][2][channels].
float* partial(const NormPlan& plan, std::byte* scratch, size_t tile, int which) {
  return reinterpret_cast<float*>(scratch) +
         (static_cast<int64_t>(tile) * 2 + which) * plan.channels;
}

// The rows of a tile, sample by sample: a factor belongs to one sample.
template <class Visit>
void for_each_sample(const NormPlan& plan, const Tile& tile, Visit visit) {
  for (int64_t done = 0; done < tile.count;) {
    const int64_t row = tile.row + done, pixel = row % plan.pixels;
    const int64_t count = std::min(tile.count - done, plan.pixels - pixel);
    visit(RowRange{row / plan.pixels, pixel, count, 0, plan.channels}, done);
    done += count;
  }
}

void update_running(const NormPlan& plan, const NormRunning& running, int64_t ghost, int64_t c,
                    double mean, double m2) {
  const auto rows = static_cast<double>(plan.ghost_rows(ghost));
  const double unbiased = rows > 1 ? m2 / (rows - 1) : 0.0;
  const double momentum = running.momentum;
  running.mean[c] = static_cast<float>((1 - momentum) * double{running.mean[c]} + momentum * mean);
  running.variance[c] =
      static_cast<float>((1 - momentum) * double{running.variance[c]} + momentum * unbiased);
}

}  // namespace

NormPlan::NormPlan(int64_t sample_count, int64_t pixel_count, int64_t channel_count,
                   int64_t ghost_samples)
    : samples(sample_count),
      pixels(pixel_count),
      channels(channel_count),
      ghost(ghost_samples == 0 ? sample_count : ghost_samples),
      ghosts(ceil_div(samples, ghost)),
      tile_rows(std::clamp<int64_t>(kTileFloats / channels, 8, kTileRows)),
      ghost_tiles(ceil_div(ghost * pixels, tile_rows)) {}

int64_t NormPlan::ghost_rows(int64_t index) const {
  return std::min(ghost, samples - index * ghost) * pixels;
}

size_t NormPlan::shared_bytes() const {
  return static_cast<size_t>(ceil_div(static_cast<int64_t>(tiles()) * 2 * channels, 16)) * 64;
}

size_t NormPlan::worker_bytes() const {
  return static_cast<size_t>(ceil_div(2 * tile_rows * channels, 16)) * 64;
}

void norm_forward(const NormPlan& plan, const Stored& y, const NormParams& params,
                  const NormBatch& batch, const NormRunning& running, std::byte* scratch,
                  base::ThreadPool& pool) noexcept {
  std::byte* workers = scratch + plan.shared_bytes();
  const bool direct = y.format == Format::kF32;
  pool.run(plan.tiles(), [&](size_t index, size_t worker) {
    const Tile tile(plan, index);
    if (tile.count == 0) return;
    auto* room = reinterpret_cast<float*>(workers + worker * plan.worker_bytes());
    const float* rows = room;
    int64_t stride = plan.channels;
    if (direct) {
      rows = static_cast<const float*>(y.data) + tile.row * y.row_stride;
      stride = y.row_stride;
    } else {
      Source source;
      source.stored = y;
      load_rows(source, {0, tile.row, tile.count, 0, plan.channels}, room, stride);
    }
    tile_moments(rows, stride, tile.count, plan.channels, partial(plan, scratch, index, 0),
                 partial(plan, scratch, index, 1));
  });
  for_channel_blocks(plan, pool, [&](int64_t first, int64_t channels) {
    for (int64_t k = 0; k < plan.ghosts; ++k) {
      JoinSums means{}, m2s{};
      double rows = 0;
      for (int64_t t = 0; t < plan.ghost_tiles; ++t) {
        const auto index = static_cast<size_t>(k * plan.ghost_tiles + t);
        const auto count = static_cast<double>(Tile(plan, index).count);
        if (count == 0) break;
        const double share = count / (rows + count), weight = rows * share;
        const float* tile_mean = partial(plan, scratch, index, 0) + first;
        const float* tile_m2 = partial(plan, scratch, index, 1) + first;
        for (size_t c = 0; c < static_cast<size_t>(channels); ++c) {
          const double off = double{tile_mean[c]} - means[c];
          m2s[c] += double{tile_m2[c]} + off * off * weight;
          means[c] += off * share;
        }
        rows += count;
      }
      for (int64_t i = 0; i < channels; ++i) {
        const int64_t c = first + i, at = k * plan.channels + c;
        const double mean = means[static_cast<size_t>(i)], m2 = m2s[static_cast<size_t>(i)];
        const double inverse = 1.0 / std::sqrt(m2 / rows + double{params.eps});
        const double scale = double{params.gamma[c]} * inverse;
        batch.mean[at] = static_cast<float>(mean);
        batch.inverse[at] = static_cast<float>(inverse);
        batch.scale[at] = static_cast<float>(scale);
        batch.shift[at] = static_cast<float>(double{params.beta[c]} - mean * scale);
        if (running.mean != nullptr) update_running(plan, running, k, c, mean, m2);
      }
    }
  });
}

void norm_frozen(int64_t channels, const NormParams& params, const float* running_mean,
                 const float* running_variance, float* scale, float* shift) noexcept {
  for (int64_t c = 0; c < channels; ++c) {
    const double factor =
        double{params.gamma[c]} / std::sqrt(double{running_variance[c]} + double{params.eps});
    scale[c] = static_cast<float>(factor);
    shift[c] = static_cast<float>(double{params.beta[c]} - double{running_mean[c]} * factor);
  }
}

StoreCounts norm_backward(const NormPlan& plan, const GradSource& grad, const NormBatch& batch,
                          const NormParams& params, const NormGrads& grads, bool rewrite,
                          std::byte* scratch, base::ThreadPool& pool) noexcept {
  std::byte* workers = scratch + plan.shared_bytes();
  const Stored& y = grad.value.stored;
  const bool direct = y.format == Format::kF32;
  GradSource before_norm = grad;
  before_norm.a = before_norm.b = before_norm.c = nullptr;
  const Stored& gy = grad.grad;
  const Sink back{const_cast<void*>(gy.data),
                  gy.format,
                  gy.channels,
                  gy.row_stride,
                  gy.pixels,
                  false,
                  gy.scale};
  CountSum counts;
  pool.run(plan.tiles(), [&](size_t index, size_t worker) {
    const Tile tile(plan, index);
    if (tile.count == 0) return;
    auto* dz = reinterpret_cast<float*>(workers + worker * plan.worker_bytes());
    float* room = dz + plan.tile_rows * plan.channels;
    for_each_sample(plan, tile, [&](const RowRange& range, int64_t done) {
      float* rows_of_sample = dz + done * plan.channels;
      load_grad_rows(before_norm, range, rows_of_sample, plan.channels);
      if (rewrite) counts.add(store_rows(back, range, rows_of_sample, plan.channels));
    });
    const float* rows = room;
    int64_t stride = plan.channels;
    if (direct) {
      rows = static_cast<const float*>(y.data) + tile.row * y.row_stride;
      stride = y.row_stride;
    } else {
      Source source;
      source.stored = y;
      load_rows(source, {0, tile.row, tile.count, 0, plan.channels}, room, stride);
    }
    tile_grad_sums(dz, plan.channels, rows, stride, tile.count, plan.channels,
                   batch.mean + tile.ghost * plan.channels, partial(plan, scratch, index, 0),
                   partial(plan, scratch, index, 1));
  });
  for_channel_blocks(plan, pool, [&](int64_t first, int64_t channels) {
    for (int64_t k = 0; k < plan.ghosts; ++k) {
      JoinSums plain{}, centred{};
      for (int64_t t = 0; t < plan.ghost_tiles; ++t) {
        const auto index = static_cast<size_t>(k * plan.ghost_tiles + t);
        if (Tile(plan, index).count == 0) break;
        const float* tile_plain = partial(plan, scratch, index, 0) + first;
        const float* tile_centred = partial(plan, scratch, index, 1) + first;
        for (size_t c = 0; c < static_cast<size_t>(channels); ++c) {
          plain[c] += double{tile_plain[c]};
          centred[c] += double{tile_centred[c]};
        }
      }
      const auto rows = static_cast<double>(plan.ghost_rows(k));
      for (size_t i = 0; i < static_cast<size_t>(channels); ++i) {
        const int64_t c = first + static_cast<int64_t>(i), at = k * plan.channels + c;
        const double inverse = double{batch.inverse[at]};
        const double a = double{params.gamma[c]} * inverse;
        const double b = -a * inverse * inverse * centred[i] / rows;
        grads.a[at] = static_cast<float>(a);
        grads.b[at] = static_cast<float>(b);
        grads.c[at] = static_cast<float>(-a * plain[i] / rows);
        // One rounding per ghost batch, so that micro-batches give the bits of the whole batch.
        grads.gamma[c] = static_cast<float>(double{grads.gamma[c]} + centred[i] * inverse);
        grads.beta[c] = static_cast<float>(double{grads.beta[c]} + plain[i]);
      }
    }
  });
  return counts.total();
}

}  // namespace tri::ops
