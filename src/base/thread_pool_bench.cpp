// The thread pool alone and beside another process.
//   RunAfterGap/us: median latency of a run() of empty tiles, a gap after the last one.
//   Beside/percent: 64 tiles against the same work cut into one piece per thread (static
//   splitting), beside a process that keeps one core busy for that share of the time. Means, as a
//   training feels every stall; ratio = tiles / split, below one where the pool wins; ideal_us is
//   the work of one undisturbed thread divided by the threads.
#include <benchmark/benchmark.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/thread_pool.h"

namespace tri::base {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// About a microsecond of arithmetic per unit of `work`, in registers.
void burn(int work) {
  uint64_t state = 1;
  for (int i = 0; i < work * 700; ++i) state = state * 6364136223846793005u + 1442695040888963407u;
  benchmark::DoNotOptimize(state);
}

// A process on the first core that is busy for `percent` of every 4 ms.
class Competitor {
 public:
  explicit Competitor(int64_t percent) {
    if (percent == 0) return;
    process_ = fork();
    if (process_ == 0) compete(percent);
  }
  ~Competitor() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  Competitor(const Competitor&) = delete;
  Competitor& operator=(const Competitor&) = delete;

 private:
  [[noreturn]] static void compete(int64_t percent) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    sched_setaffinity(0, sizeof(first), &first);
    const int64_t busy_ns = percent * 40'000;
    const timespec rest = {0, 4'000'000 - busy_ns};
    while (true) {
      for (const Stopwatch watch; watch.elapsed_ns() < busy_ns;) {
      }
      nanosleep(&rest, nullptr);
    }
  }

  pid_t process_ = 0;
};

size_t cores() { return std::max(2u, std::thread::hardware_concurrency()); }

void run_after_gap(benchmark::State& state) {
  ThreadPool pool(cores());
  const int64_t gap_ns = state.range(0) * 1000;
  std::vector<double> latencies_us;
  for (auto unused : state) {
    for (const Stopwatch gap; gap.elapsed_ns() < gap_ns;) {
    }
    const Stopwatch watch;
    pool.run(2 * pool.threads(), [](size_t, size_t) {});
    latencies_us.push_back(static_cast<double>(watch.elapsed_ns()) * 1e-3);
    state.SetIterationTime(latencies_us.back() * 1e-6);
  }
  state.counters["latency_us"] = median(latencies_us);
}
BENCHMARK(run_after_gap)
    ->Name("RunAfterGap")
    ->Arg(0)
    ->Arg(10)
    ->Arg(100)
    ->Arg(500)
    ->UseManualTime()
    ->Iterations(2000)
    ->Unit(benchmark::kMicrosecond);

// Jobs of 640 us of one thread, with 50 us of the caller's own work between them.
void beside(benchmark::State& state) {
  constexpr int kTiles = 64;
  constexpr int kTileWork = 10;
  const Competitor competitor(state.range(0));
  ThreadPool pool(cores());
  const int pieces = static_cast<int>(pool.threads());
  std::vector<double> tiles_us, split_us;
  const auto timed = [](auto&& job) {
    burn(50);
    const Stopwatch watch;
    job();
    return static_cast<double>(watch.elapsed_ns()) * 1e-3;
  };
  for (auto unused : state) {
    tiles_us.push_back(timed([&] { pool.run(kTiles, [](size_t, size_t) { burn(kTileWork); }); }));
    split_us.push_back(timed([&] {
      pool.run(pool.threads(), [&](size_t, size_t) { burn(kTiles * kTileWork / pieces); });
    }));
    state.SetIterationTime(tiles_us.back() * 1e-6);
  }
  std::vector<double> alone_us;
  for (int i = 0; i < 100; ++i) alone_us.push_back(timed([] { burn(kTiles * kTileWork); }));
  state.counters["tiles_us"] = mean(tiles_us);
  state.counters["split_us"] = mean(split_us);
  state.counters["ideal_us"] = *std::min_element(alone_us.begin(), alone_us.end()) / pieces;
  state.counters["ratio"] = mean(tiles_us) / mean(split_us);
}
BENCHMARK(beside)
    ->Name("Beside")
    ->Arg(0)
    ->Arg(50)
    ->Arg(100)
    ->UseManualTime()
    ->Iterations(1500)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tri::base
