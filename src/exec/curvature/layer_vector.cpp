#include "exec/curvature/layer_vector.h"

#include <algorithm>
#include <cmath>

namespace tri::exec {
namespace {

constexpr int64_t kTile = 16384;

size_t tiles_of(int64_t size) { return static_cast<size_t>((size + kTile - 1) / kTile); }

// Calls body(tile, begin, end) for all tiles, on the pool.
template <class Body>
void for_each_tile(int64_t size, base::ThreadPool& pool, Body body) {
  pool.run(tiles_of(size), [&](size_t tile, size_t) {
    const int64_t begin = static_cast<int64_t>(tile) * kTile;
    body(tile, begin, std::min(size, begin + kTile));
  });
}

}  // namespace

size_t sums_bytes(int64_t size) { return tiles_of(size) * sizeof(double); }

double dot(const float* a, const float* b, int64_t size, double* room, base::ThreadPool& pool) {
  for_each_tile(size, pool, [&](size_t tile, int64_t begin, int64_t end) {
    // Four chains, so that an addition need not wait for the one before.
    double sums[4] = {0, 0, 0, 0};
    for (int64_t i = begin; i < end; ++i) sums[i % 4] += double{a[i]} * double{b[i]};
    room[tile] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  });
  double all = 0;
  for (size_t tile = 0; tile < tiles_of(size); ++tile) all += room[tile];
  return all;
}

void combine(double scale, float* y, double x_scale, const float* x, int64_t size,
             base::ThreadPool& pool) {
  for_each_tile(size, pool, [&](size_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      y[i] = static_cast<float>(scale * double{y[i]} + x_scale * double{x[i]});
  });
}

void perturb(const StepRun& run, const LayerVector& layer, float factor, const float* direction,
             float* copy) {
  for (const LayerPart& part : layer.parts) {
    const ParameterSlot& slot = run.parameters->slot(part.parameter);
    const float* along = direction + part.offset;
    float* to = copy + part.offset;
    for_each_tile(static_cast<int64_t>(slot.count), *run.pool,
                  [&](size_t, int64_t begin, int64_t end) {
                    if (slot.dense)
                      ops::load_weights(
                          run.parameters->weights(part.parameter, run.plan->formats(layer.layer).p),
                          begin, end - begin, to + begin);
                    else
                      std::copy(run.parameters->vector(part.parameter) + begin,
                                run.parameters->vector(part.parameter) + end, to + begin);
                    for (int64_t i = begin; i < end; ++i) to[i] += factor * along[i];
                  });
  }
}

float difference_step(const StepRun& run, const LayerVector& layer, const float* copy,
                      double* room) {
  constexpr double kRelative = 0x1p-8;  // the third root of 2^-24
  double length = 0;
  for (const LayerPart& part : layer.parts) {
    const ParameterSlot& slot = run.parameters->slot(part.parameter);
    if (!slot.dense) continue;
    const float* weight = copy + part.offset;
    const double squares = dot(weight, weight, static_cast<int64_t>(slot.count), room, *run.pool);
    const auto rows = static_cast<double>(slot.geometry.group_out());
    const auto columns = static_cast<double>(slot.geometry.taps() * slot.geometry.group_in());
    const double sigma = std::sqrt(squares / (columns * static_cast<double>(slot.geometry.out.c)));
    length = std::max(length, sigma * (std::sqrt(rows) + std::sqrt(columns)));
  }
  return static_cast<float>(kRelative * (length > 0 ? length : 1.0));
}

}  // namespace tri::exec
