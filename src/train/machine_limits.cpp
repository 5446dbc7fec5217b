#include "train/machine_limits.h"

#include <hwy/cache_control.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <system_error>
#include <thread>

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

// Waits until `word` is `value`; where both threads have but one core, somebody must leave it.
void await(const std::atomic<uint32_t>& word, uint32_t value) {
  constexpr int kSpins = 200;  // microseconds, and longer than any cache takes
  for (int i = 0; word.load(std::memory_order_acquire) != value; ++i)
    i < kSpins ? hwy::Pause() : static_cast<void>(sched_yield());
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

double handover_ns() {
  constexpr uint32_t kBursts = 20, kTimes = 1000;
  alignas(64) std::atomic<uint32_t> word{0};  // even: ours to raise, odd: the other one's
  std::thread other;
  try {
    other = std::thread([&word] {
      for (uint32_t i = 0; i < kBursts * kTimes; ++i) {
        await(word, 2 * i + 1);
        word.store(2 * i + 2, std::memory_order_release);
      }
    });
  } catch (const std::system_error&) {
    return 0;
  }
  double best = std::numeric_limits<double>::infinity();
  for (uint32_t burst = 0; burst < kBursts; ++burst) {
    const base::Stopwatch watch;
    for (uint32_t i = burst * kTimes; i < (burst + 1) * kTimes; ++i) {
      word.store(2 * i + 1, std::memory_order_release);
      await(word, 2 * i + 2);
    }
    best = std::min(best, 1e9 * watch.seconds() / kTimes);
  }
  other.join();
  return best;
}

}  // namespace tri::train
