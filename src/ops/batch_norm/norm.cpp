#include "ops/batch_norm/norm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <new>

#include "base/ceil_div.h"
#include "ops/batch_norm/norm_kernel.h"

namespace tri::ops {
namespace {

using base::ceil_div;

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

int64_t sum_bytes(const NormPlan& plan) {
  return ceil_div(static_cast<int64_t>(plan.tiles()) * 2 * plan.channels, 16) * 64;
}

// The two sums of every tile: [tile][2][channels].
const float* partial(const NormPlan& plan, const std::byte* scratch, size_t tile, int which) {
  return reinterpret_cast<const float*>(scratch) +
         (static_cast<int64_t>(tile) * 2 + which) * plan.channels;
}
float* partial(const NormPlan& plan, std::byte* scratch, size_t tile, int which) {
  return const_cast<float*>(partial(plan, const_cast<const std::byte*>(scratch), tile, which));
}

RowsAt decoded_rows(const NormPlan& plan, const Stored& y, const Tile& tile, float* room) {
  Source source;
  source.stored = y;
  load_rows(source, {0, tile.row, tile.count, 0, plan.channels}, room, plan.channels);
  return {room, Format::kF32, plan.channels};
}

// The stored rows of a tile: where they lie if kernels can read them there, else in `room`.
RowsAt stored_rows(const NormPlan& plan, const Stored& y, const Tile& tile, float* room) {
  if (converts_on_load(y.format))
    return {static_cast<const std::byte*>(y.data) +
                static_cast<size_t>(tile.row * y.row_stride) * numeric::storage_bytes(y.format),
            y.format, y.row_stride, 1.0f / y.scale};
  return decoded_rows(plan, y, tile, room);
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
  // A step that overflowed is lost, whoever finds it later; the statistics outlive it.
  if (!std::isfinite(mean) || !std::isfinite(m2)) return;
  const auto rows = static_cast<double>(plan.ghost_rows(ghost));
  const double unbiased = rows > 1 ? m2 / (rows - 1) : 0.0;
  const double momentum = running.momentum;
  running.mean[c] = static_cast<float>((1 - momentum) * double{running.mean[c]} + momentum * mean);
  running.variance[c] =
      static_cast<float>((1 - momentum) * double{running.variance[c]} + momentum * unbiased);
}

// From the sums of ghost batch k.
void finish_grads(const NormPlan& plan, const NormBatch& batch, const NormParams& params,
                  const NormGrads& grads, int64_t k, int64_t first, int64_t channels,
                  const JoinSums& plain, const JoinSums& centred) {
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
  const auto counters = static_cast<int64_t>(tiles() * sizeof(std::atomic<int32_t>));
  return static_cast<size_t>(sum_bytes(*this) + ceil_div(counters, 64) * 64);
}

size_t NormPlan::worker_bytes() const {
  return static_cast<size_t>(ceil_div(2 * tile_rows * channels, 16)) * 64;
}

NormSums::NormSums(const NormPlan& plan, std::byte* scratch)
    : plan_(plan),
      scratch_(scratch),
      left_(reinterpret_cast<std::atomic<int32_t>*>(scratch + sum_bytes(plan))) {
  for (size_t index = 0; index < plan.tiles(); ++index)
    new (left_ + index)
        std::atomic<int32_t>(static_cast<int32_t>(Tile(plan, index).count * plan.channels));
}

float* NormSums::room(size_t worker) const {
  return reinterpret_cast<float*>(scratch_ + plan_.shared_bytes() + worker * plan_.worker_bytes());
}

void NormSums::make_all(base::ThreadPool& pool) noexcept {
  pool.run(plan_.tiles(), [this](size_t index, size_t worker) {
    if (Tile(plan_, index).count > 0) tile(index, worker);
  });
}

void NormSums::finished(const RowRange& range, size_t worker) noexcept {
  const int64_t ghost_rows = plan_.ghost * plan_.pixels;
  int64_t row = range.sample * plan_.pixels + range.pixel;
  for (const int64_t end = row + range.count; row < end;) {
    const int64_t ghost = row / ghost_rows, first = ghost * ghost_rows;
    const int64_t tile_of_ghost = (row - first) / plan_.tile_rows;
    const int64_t tile_end = first + std::min((tile_of_ghost + 1) * plan_.tile_rows, ghost_rows);
    const int64_t some = std::min(end, tile_end) - row;
    const auto index = static_cast<size_t>(ghost * plan_.ghost_tiles + tile_of_ghost);
    const auto numbers = static_cast<int32_t>(some * range.channels);
    // Whoever counts to zero sees what the others wrote.
    if (left_[index].fetch_sub(numbers, std::memory_order_acq_rel) == numbers) tile(index, worker);
    row += some;
  }
}

void NormMoments::tile(size_t index, size_t worker) noexcept {
  const Tile tile(plan_, index);
  tile_moments(stored_rows(plan_, y_, tile, room(worker)), tile.count, plan_.channels,
               partial(plan_, scratch_, index, 0), partial(plan_, scratch_, index, 1));
}

void norm_join(const NormPlan& plan, const NormParams& params, const NormBatch& batch,
               const NormRunning& running, const std::byte* scratch,
               base::ThreadPool& pool) noexcept {
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

void norm_forward(const NormPlan& plan, const Stored& y, const NormParams& params,
                  const NormBatch& batch, const NormRunning& running, std::byte* scratch,
                  base::ThreadPool& pool) noexcept {
  NormMoments(plan, y, scratch).make_all(pool);
  norm_join(plan, params, batch, running, scratch, pool);
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

NormGradSums::NormGradSums(const NormPlan& plan, const GradSource& grad, const float* mean,
                           Rewrite rewrite, std::byte* scratch)
    : NormSums(plan, scratch), grad_(grad), mean_(mean), rewrite_(rewrite) {
  grad_.a = grad_.b = grad_.c = nullptr;
  const Stored& gy = grad.grad;
  back_ = {const_cast<void*>(gy.data),
           gy.format,
           gy.channels,
           gy.row_stride,
           gy.pixels,
           false,
           gy.scale};
}

void NormGradSums::pass(const RowRange& range, float* rows, int64_t stride) const noexcept {
  if (rewrite_ == Rewrite::kWhenPassed) differentiate_rows(grad_, range, rows, stride);
}

bool NormGradSums::passes_by_slope() const noexcept {
  const Source& value = grad_.value;
  return rewrite_ == Rewrite::kWhenPassed && grad_.channel_addend == nullptr &&
         value.channel_factor == nullptr && value.sample_factor == nullptr &&
         value.gates == nullptr;
}

void NormGradSums::tile(size_t index, size_t worker) noexcept {
  const Tile tile(plan_, index);
  float *room_of_dz = room(worker), *values = room_of_dz + plan_.tile_rows * plan_.channels;
  const RowsAt y = stored_rows(plan_, grad_.value.stored, tile, values);
  const auto sum = [&](const RowsAt& dz) {
    tile_grad_sums(dz, y, tile.count, plan_.channels, mean_ + tile.ghost * plan_.channels,
                   partial(plan_, scratch_, index, 0), partial(plan_, scratch_, index, 1));
  };
  if (rewrite_ == Rewrite::kWhenPassed) {
    return sum(read_together(grad_.grad.format, y.format)
                   ? stored_rows(plan_, grad_.grad, tile, room_of_dz)
                   : decoded_rows(plan_, grad_.grad, tile, room_of_dz));
  }
  const bool rewrites = rewrite_ == Rewrite::kWhenSummed, in_place = rewrites && back_.direct();
  float* dz = room_of_dz;
  int64_t dz_stride = plan_.channels;
  if (in_place) {
    dz = static_cast<float*>(back_.data) + tile.row * back_.row_stride;
    dz_stride = back_.row_stride;
  }
  for_each_sample(plan_, tile, [&](const RowRange& range, int64_t done) {
    float* rows_of_sample = dz + done * dz_stride;
    load_grad_rows(grad_, range, rows_of_sample, dz_stride);
    if (rewrites && !in_place) counts_.add(store_rows(back_, range, rows_of_sample, dz_stride));
  });
  sum({dz, Format::kF32, dz_stride});
}

void norm_join_grads(const NormPlan& plan, const NormBatch& batch, const NormParams& params,
                     const NormGrads& grads, const std::byte* scratch,
                     base::ThreadPool& pool) noexcept {
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
      finish_grads(plan, batch, params, grads, k, first, channels, plain, centred);
    }
  });
}

void norm_join_grads(const NormPlan& plan, const NormBatch& batch, const NormParams& params,
                     const NormGrads& grads, const FactoredSums& sums,
                     base::ThreadPool& pool) noexcept {
  for_channel_blocks(plan, pool, [&](int64_t first, int64_t channels) {
    for (int64_t k = 0; k < plan.ghosts; ++k) {
      JoinSums plain{}, centred{};
      const int64_t end = std::min(plan.samples, (k + 1) * plan.ghost);
      for (int64_t sample = k * plan.ghost; sample < end; ++sample) {
        const float* of_grad = sums.sums + sample * kFactoredSums * plan.channels + first;
        const float* of_grad_centred = of_grad + plan.channels;
        const float* of_slope = of_grad_centred + plan.channels;
        const float* of_slope_centred = of_slope + plan.channels;
        const float* factor = sums.factor + sample * plan.channels + first;
        const float* addend = sums.addend + sample * plan.channels + first;
        for (size_t c = 0; c < static_cast<size_t>(channels); ++c) {
          const double f = double{factor[c]}, m = double{addend[c]};
          plain[c] += f * double{of_grad[c]} + m * double{of_slope[c]};
          centred[c] += f * double{of_grad_centred[c]} + m * double{of_slope_centred[c]};
        }
      }
      finish_grads(plan, batch, params, grads, k, first, channels, plain, centred);
    }
  });
}

StoreCounts norm_backward(const NormPlan& plan, const GradSource& grad, const NormBatch& batch,
                          const NormParams& params, const NormGrads& grads, bool rewrite,
                          std::byte* scratch, base::ThreadPool& pool) noexcept {
  NormGradSums sums(plan, grad, batch.mean, rewrite ? Rewrite::kWhenSummed : Rewrite::kNever,
                    scratch);
  sums.make_all(pool);
  norm_join_grads(plan, batch, params, grads, scratch, pool);
  return sums.lost();
}

}  // namespace tri::ops
