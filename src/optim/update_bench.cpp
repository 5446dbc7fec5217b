// Update kernels on all cores, in bytes moved per second: each part of weights and state read and
// written, the gradient read. `of_copy` is the share of a copy's bandwidth on the same cores,
// measured just before; the bar is 0.7.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/thread_pool.h"
#include "optim/param_fixture.h"

namespace tri::optim {
namespace {

// More than 64 MB in every form, so that no cache holds it.
constexpr size_t kCount = size_t{16} << 20;
constexpr size_t kTile = size_t{16} << 10;

base::ThreadPool& pool() {
  static base::ThreadPool all(std::max(1u, std::thread::hardware_concurrency()));
  return all;
}

// Median of a few copies, each byte counted as read and as written.
double copy_bytes_per_second() {
  constexpr size_t kBytes = size_t{64} << 20, kPiece = size_t{1} << 20;
  static std::vector<char> source(kBytes, 1), target(kBytes, 2);
  double seconds[7];
  for (double& time : seconds) {
    const auto start = std::chrono::steady_clock::now();
    pool().run(kBytes / kPiece, [&](size_t tile, size_t) {
      std::memcpy(target.data() + tile * kPiece, source.data() + tile * kPiece, kPiece);
    });
    time = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  std::nth_element(seconds, seconds + 3, seconds + 7);
  return 2.0 * kBytes / seconds[3];
}

void time_update(benchmark::State& state, Rule rule, Form form) {
  Param param(rule, form.weight, form.state, random_floats(kCount, 1, 1.0));
  const std::vector<float> grad = random_floats(kCount, 2, 0.1);
  const Coefficients c = coefficients(rule, {.lr = 1e-3, .weight_decay = 1e-4});
  const double copy = copy_bytes_per_second();
  Noise noise;
  for (auto _ : state) {
    ++noise.step;
    pool().run(kCount / kTile, [&](size_t tile, size_t) {
      update(c, param.storage(), tile * kTile, kTile, grad.data() + tile * kTile, noise);
    });
  }
  const size_t bytes = 2 * weight_bytes(form.weight, kCount) +
                       2 * state_bytes(form.state, kCount, moments(rule)) + sizeof(float) * kCount;
  const double moved = static_cast<double>(state.iterations() * bytes);
  state.counters["bytes/s"] = benchmark::Counter(moved, benchmark::Counter::kIsRate);
  state.counters["of_copy"] = benchmark::Counter(moved / copy, benchmark::Counter::kIsRate);
}

const bool kRegistered = [] {
  for (const Rule rule : {Rule::kSgd, Rule::kAdamW}) {
    for (const Form form : kForms) {
      benchmark::RegisterBenchmark(("Update/" + form.text(rule)).c_str(), time_update, rule, form)
          ->Unit(benchmark::kMillisecond)
          ->UseRealTime();
    }
  }
  return true;
}();

}  // namespace
}  // namespace tri::optim
