// All poolings against a copy of 64 MB in the same run (depthwise/copy). Bytes are those that must
// pass. Run: ops_benches --benchmark_filter='pool|copy'; TRI_BENCH_THREADS=2 by default.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <vector>

#include "ops/avg_pool/avg_pool.h"
#include "ops/global_avg_pool/global_pool.h"
#include "ops/max_pool/max_pool.h"

namespace tri::ops {
namespace {

size_t threads() {
  const char* asked = std::getenv("TRI_BENCH_THREADS");
  return asked == nullptr ? 2 : std::stoul(asked);
}

// ResNet's stem at 224 pixels, and the map in front of its classifier.
const Window kStem{{112, 112, 64}, {56, 56, 64}, 3, 3, 2, 2, 1, 1};
constexpr int64_t kStemSamples = 16;
const Shape kLast{7, 7, 1280};
constexpr int64_t kLastSamples = 256;

struct Setup {
  Setup(const Shape& in_shape, const Shape& out_shape, int64_t samples)
      : pool(threads()),
        x(static_cast<size_t>(samples * in_shape.elements())),
        y(static_cast<size_t>(samples * out_shape.elements())),
        factor(static_cast<size_t>(in_shape.c), 0.5f),
        in{{x.data(), Format::kF32, in_shape.c, in_shape.c, in_shape.pixels()},
           {factor.data(), factor.data(), 0, samples},
           Activation::kRelu},
        grad{{y.data(), Format::kF32, in_shape.c, in_shape.c, out_shape.pixels()}, {}},
        to_in{x.data(), Format::kF32, in_shape.c, in_shape.c, in_shape.pixels()},
        to_out{y.data(), Format::kF32, in_shape.c, in_shape.c, out_shape.pixels()} {}
  // Runs body(scratch) and reports x, y and `extra` bytes.
  template <class Body>
  void measure(benchmark::State& state, size_t worker_bytes, size_t extra, Body body) {
    std::vector<std::byte> scratch(worker_bytes * pool.threads());
    for (auto _ : state) body(scratch.data());
    const auto bytes = static_cast<double>((x.size() + y.size()) * sizeof(float) + extra);
    state.counters["GB/s"] =
        benchmark::Counter(bytes * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  }
  base::ThreadPool pool;
  std::vector<float> x, y, factor;
  Source in;
  GradSource grad;
  Sink to_in, to_out;
};

void max_forward(benchmark::State& state) {
  Setup s(kStem.in, kStem.out, kStemSamples);
  const MaxPoolPlan plan(kStem, Pass::kForward, kStemSamples);
  std::vector<uint8_t> argmax(plan.argmax_bytes());
  s.measure(state, plan.worker_bytes(), argmax.size(), [&](std::byte* scratch) {
    max_pool_forward(plan, s.in, s.to_out, argmax.data(), scratch, s.pool);
  });
}

void max_backward(benchmark::State& state) {
  Setup s(kStem.in, kStem.out, kStemSamples);
  const MaxPoolPlan plan(kStem, Pass::kBackward, kStemSamples);
  const std::vector<uint8_t> argmax(plan.argmax_bytes(), 4);
  s.measure(state, plan.worker_bytes(), argmax.size(), [&](std::byte* scratch) {
    max_pool_backward(plan, s.grad, argmax.data(), s.to_in, scratch, s.pool);
  });
}

void avg_forward(benchmark::State& state) {
  Setup s(kStem.in, kStem.out, kStemSamples);
  const AvgPoolPlan plan(kStem, true, Pass::kForward, kStemSamples);
  s.measure(state, plan.worker_bytes(), 0,
            [&](std::byte* scratch) { avg_pool_forward(plan, s.in, s.to_out, scratch, s.pool); });
}

void avg_backward(benchmark::State& state) {
  Setup s(kStem.in, kStem.out, kStemSamples);
  const AvgPoolPlan plan(kStem, true, Pass::kBackward, kStemSamples);
  s.measure(state, plan.worker_bytes(), 0,
            [&](std::byte* scratch) { avg_pool_backward(plan, s.grad, s.to_in, scratch, s.pool); });
}

void global_forward(benchmark::State& state) {
  Setup s(kLast, {1, 1, kLast.c}, kLastSamples);
  const GlobalPoolPlan plan(kLast, kLastSamples);
  s.measure(state, plan.worker_bytes(), 0, [&](std::byte* scratch) {
    global_pool_forward(plan, s.in, s.to_out, scratch, s.pool);
  });
}

void global_backward(benchmark::State& state) {
  Setup s(kLast, {1, 1, kLast.c}, kLastSamples);
  const GlobalPoolPlan plan(kLast, kLastSamples);
  s.measure(state, plan.worker_bytes(), 0, [&](std::byte* scratch) {
    global_pool_backward(plan, s.grad, s.to_in, scratch, s.pool);
  });
}

BENCHMARK(max_forward)->Name("pool/max/forward")->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(max_backward)->Name("pool/max/backward")->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(avg_forward)->Name("pool/avg/forward")->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(avg_backward)->Name("pool/avg/backward")->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(global_forward)
    ->Name("pool/global/forward")
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(global_backward)
    ->Name("pool/global/backward")
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tri::ops
