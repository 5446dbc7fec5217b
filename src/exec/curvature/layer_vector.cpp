#include "exec/curvature/layer_vector.h"

#include <algorithm>
#include <cmath>

#include "base/ceil_div.h"

namespace tri::exec {
namespace {

constexpr int64_t kTile = 16384;
constexpr int64_t kPiece = 2048;  // parameters held on the stack

using base::ceil_div;

// Calls body(tile, begin, end) for all tiles, on the pool.
template <class Body>
void for_each_tile(int64_t size, base::ThreadPool& pool, Body body) {
  pool.run(static_cast<size_t>(ceil_div(size, kTile)), [&](size_t tile, size_t) {
    const int64_t begin = static_cast<int64_t>(tile) * kTile;
    body(tile, begin, std::min(size, begin + kTile));
  });
}

// Calls body(tile, at, count, w) for pieces of a part, `at` in the part; returns how many tiles.
template <class Body>
size_t for_each_piece(const StepRun& run, int layer, size_t parameter, Body body) {
  const ParameterSlot& slot = run.parameters->slot(parameter);
  const auto size = static_cast<int64_t>(slot.count);
  for_each_tile(size, *run.pool, [&](size_t tile, int64_t begin, int64_t end) {
    float w[kPiece];
    for (int64_t at = begin; at < end; at += kPiece) {
      const int64_t some = std::min(kPiece, end - at);
      if (slot.dense)
        ops::load_weights(run.parameters->weights(parameter, run.plan->formats(layer).p), at, some,
                          w);
      else
        std::copy_n(run.parameters->vector(parameter) + at, some, w);
      body(tile, at, some, w);
    }
  });
  return static_cast<size_t>(ceil_div(size, kTile));
}

// The same for all parts, `at` in the vector, tiles counted over all.
template <class Body>
size_t for_each_piece(const StepRun& run, const LayerVector& layer, Body body) {
  size_t before = 0;
  for (const LayerPart& part : layer.parts)
    before += for_each_piece(run, layer.layer, part.parameter,
                             [&](size_t tile, int64_t at, int64_t count, const float* w) {
                               body(before + tile, part.offset + at, count, w);
                             });
  return before;
}

size_t tiles_of(const LayerVector& layer) {
  return static_cast<size_t>(ceil_div(layer.size, kTile)) + layer.parts.size();
}

}  // namespace

size_t sums_bytes(const LayerVector& layer) { return 2 * tiles_of(layer) * sizeof(double); }

double dot(const float* a, const float* b, int64_t size, double* room, base::ThreadPool& pool) {
  for_each_tile(size, pool, [&](size_t tile, int64_t begin, int64_t end) {
    // Four chains, so that an addition need not wait for the one before.
    double sums[4] = {0, 0, 0, 0};
    for (int64_t i = begin; i < end; ++i) sums[i % 4] += double{a[i]} * double{b[i]};
    room[tile] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  });
  double all = 0;
  for (int64_t tile = 0; tile < ceil_div(size, kTile); ++tile) all += room[tile];
  return all;
}

void add_scaled(double factor, const float* x, float* y, int64_t size, base::ThreadPool& pool) {
  for_each_tile(size, pool, [&](size_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      y[i] = static_cast<float>(double{y[i]} + factor * double{x[i]});
  });
}

void move(const StepRun& run, const LayerVector& layer, float factor, const float* direction,
          float* moved) {
  for_each_piece(run, layer, [&](size_t, int64_t at, int64_t count, const float* w) {
    for (int64_t i = 0; i < count; ++i) moved[at + i] = w[i] + factor * direction[at + i];
  });
}

void reflect(const StepRun& run, const LayerVector& layer, float* moved) {
  for_each_piece(run, layer, [&](size_t, int64_t at, int64_t count, const float* w) {
    for (int64_t i = 0; i < count; ++i) moved[at + i] = w[i] - (moved[at + i] - w[i]);
  });
}

MovedSums moved_sums(const StepRun& run, const LayerVector& layer, const float* moved,
                     const float* x, double* room) {
  std::fill_n(room, 2 * tiles_of(layer), 0.0);
  const size_t tiles =
      for_each_piece(run, layer, [&](size_t tile, int64_t at, int64_t count, const float* w) {
        double squares = 0, along = 0;
        for (int64_t i = 0; i < count; ++i) {
          const double d = double{w[i] - moved[at + i]};
          squares += d * d;
          along += d * double{x[at + i]};
        }
        room[2 * tile] += squares;
        room[2 * tile + 1] += along;
      });
  MovedSums all;
  for (size_t tile = 0; tile < tiles; ++tile) {
    all.squares += room[2 * tile];
    all.along += room[2 * tile + 1];
  }
  return all;
}

float difference_step(const StepRun& run, const LayerVector& layer, double* room) {
  constexpr double kRelative = 0x1p-8;  // the third root of 2^-24
  double length = 0;
  for (const LayerPart& part : layer.parts) {
    const ParameterSlot& slot = run.parameters->slot(part.parameter);
    if (!slot.dense) continue;
    std::fill_n(room, tiles_of(layer), 0.0);
    const size_t tiles = for_each_piece(run, layer.layer, part.parameter,
                                        [&](size_t tile, int64_t, int64_t count, const float* w) {
                                          for (int64_t i = 0; i < count; ++i)
                                            room[tile] += double{w[i]} * double{w[i]};
                                        });
    double squares = 0;
    for (size_t tile = 0; tile < tiles; ++tile) squares += room[tile];
    const auto rows = static_cast<double>(slot.geometry.group_out());
    const auto columns = static_cast<double>(slot.geometry.taps() * slot.geometry.group_in());
    const double sigma = std::sqrt(squares / (columns * static_cast<double>(slot.geometry.out.c)));
    length = std::max(length, sigma * (std::sqrt(rows) + std::sqrt(columns)));
  }
  return static_cast<float>(kRelative * (length > 0 ? length : 1.0));
}

}  // namespace tri::exec
