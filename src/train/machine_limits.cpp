#include "train/machine_limits.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"

namespace tri::train {
namespace {

double best_gflops(base::ThreadPool& pool, double (*one)(float*) noexcept) {
  constexpr int kBursts = 5;
  constexpr size_t kTilesPerThread = 4;  // taken one by one: a disturbed thread takes fewer
  std::vector<float> sinks(kTilesPerThread * pool.threads());
  std::vector<double> flops(sinks.size());
  double best = 0;
  for (int burst = 0; burst < kBursts; ++burst) {
    const base::Stopwatch watch;
    pool.run(sinks.size(), [&](size_t tile, size_t) { flops[tile] = one(&sinks[tile]); });
    best =
        std::max(best, 1e-9 * flops.front() * static_cast<double>(flops.size()) / watch.seconds());
  }
  return best;
}

}  // namespace

double fma_peak_gflops(base::ThreadPool& pool) { return best_gflops(pool, fma_burst); }
double pair_peak_gflops(base::ThreadPool& pool) { return best_gflops(pool, pair_burst); }

double CopyBandwidth::gbytes_per_second(base::ThreadPool& pool) {
  constexpr int kCopies = 3;
  constexpr size_t kPiece = size_t{256} << 10;
  double best = 0;
  for (int copy = 0; copy < kCopies; ++copy) {
    const base::Stopwatch watch;
    pool.run(kCopyBytes / kPiece, [this](size_t tile, size_t) {
      std::memcpy(to_.data() + tile * kPiece, from_.data() + tile * kPiece, kPiece);
    });
    best = std::max(best, 2e-9 * kCopyBytes / watch.seconds());
  }
  return best;
}

}  // namespace tri::train
