#include "ops/batch_norm/norm.h"

#include <algorithm>
#include <cmath>
#include <new>

#include "base/ceil_div.h"
#include "ops/batch_norm/norm_kernel.h"

namespace tri::ops {
namespace {

using base::ceil_div;

// A tile of rows should be in L2 still when its sums are made, and long beside their joining.
constexpr int64_t kTileFloats = 24 * 1024;
// fp32 chains stay short; longer sums are joined in double precision.
constexpr int64_t kTileRows = 128;

// A worker joins whole cache lines of every tile's sums, and not so few that waking it costs more.
constexpr int64_t kJoinChannels = 16;
constexpr int64_t kJoinSums = 8 * 1024;

// Calls join(first channel, channels, ghost batch) for blocks of channels, on the pool. `each`:
// numbers that are joined per channel.
template <class Join>
void for_channel_blocks(const NormPlan& plan, int64_t each, base::ThreadPool& pool, Join join) {
  const int64_t lines = ceil_div(plan.channels, kJoinChannels);
  const int64_t blocks = std::clamp<int64_t>(plan.channels * each / kJoinSums, 1, lines);
  const int64_t most = ceil_div(lines, blocks) * kJoinChannels;
  pool.run(static_cast<size_t>(ceil_div(plan.channels, most)), [&](size_t block, size_t) {
    const int64_t first = static_cast<int64_t>(block) * most;
    for (int64_t k = 0; k < plan.ghosts; ++k) join(first, std::min(plan.channels - first, most), k);
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
  if (converts_on_load(y.format)) return rows_at(y, {0, tile.row, tile.count, 0, plan.channels});
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

// The sums of ghost batch k, from a channel on.
JoinedTiles tiles_of(const NormPlan& plan, const std::byte* scratch, int64_t k, int64_t first,
                     int64_t channels) {
  return {partial(plan, scratch, static_cast<size_t>(k * plan.ghost_tiles), 0) + first,
          plan.channels, plan.ghost_rows(k), plan.tile_rows, channels};
}

NormParams at_channel(const NormParams& params, int64_t c) {
  return {params.gamma + c, params.beta + c, params.eps};
}
NormBatch at_channel(const NormBatch& batch, int64_t at) {
  return {batch.mean + at, batch.inverse + at, batch.scale + at, batch.shift + at};
}
NormGrads at_channel(const NormGrads& grads, int64_t at, int64_t c) {
  return {grads.a + at, grads.b + at, grads.c + at, grads.gamma + c, grads.beta + c};
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
  const auto join = [&](int64_t first, int64_t channels, int64_t k) {
    NormRunning kept = running;
    if (running.mean != nullptr) {
      kept.mean += first;
      kept.variance += first;
    }
    join_moments(tiles_of(plan, scratch, k, first, channels), at_channel(params, first),
                 at_channel(batch, k * plan.channels + first), kept);
  };
  for_channel_blocks(plan, 2 * static_cast<int64_t>(plan.tiles()), pool, join);
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
  const auto join = [&](int64_t first, int64_t channels, int64_t k) {
    const int64_t at = k * plan.channels + first;
    join_grads(tiles_of(plan, scratch, k, first, channels), at_channel(params, first),
               at_channel(batch, at), at_channel(grads, at, first));
  };
  for_channel_blocks(plan, 2 * static_cast<int64_t>(plan.tiles()), pool, join);
}

void norm_join_grads(const NormPlan& plan, const NormBatch& batch, const NormParams& params,
                     const NormGrads& grads, const FactoredSums& sums,
                     base::ThreadPool& pool) noexcept {
  const auto join = [&](int64_t first, int64_t channels, int64_t k) {
    const int64_t at = k * plan.channels + first, sample = k * plan.ghost;
    const FactoredSums of_ghost{sums.sums + sample * kFactoredSums * plan.channels + first,
                                sums.factor + sample * plan.channels + first,
                                sums.addend + sample * plan.channels + first};
    join_factored_grads(of_ghost, std::min(plan.ghost, plan.samples - sample), plan.channels,
                        plan.ghost_rows(k), channels, at_channel(params, first),
                        at_channel(batch, at), at_channel(grads, at, first));
  };
  for_channel_blocks(plan, kFactoredSums * plan.samples, pool, join);
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
