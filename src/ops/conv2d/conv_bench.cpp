// Dense convolution against the FMA peak measured in the same run; shapes of ResNet-18 at 32 pixels
// and batch 96 first, then others. Counts useful multiply-adds only, Winograd's as those of the sum
// over taps; ..._bf16 multiplies pairs of bf16. Run: ops_benches --benchmark_filter=conv;
// TRI_BENCH_THREADS=2 by default.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "ops/conv2d/gather_conv.h"
#include "ops/conv2d/outer_conv.h"
#include "ops/conv2d/winograd.h"
#include "ops/conv2d/winograd_outer.h"
#include "simd/target.h"

namespace tri::ops {
namespace {

struct Case {
  const char* name;
  int64_t in, out, map, kernel, stride, samples;
};
constexpr Case kCases[] = {
    {"64x64@8", 64, 64, 8, 3, 1, 96},         {"64x128@8/2", 64, 128, 8, 3, 2, 96},
    {"128x128@4", 128, 128, 4, 3, 1, 96},     {"128x256@4/2", 128, 256, 4, 3, 2, 96},
    {"256x256@2", 256, 256, 2, 3, 1, 96},     {"256x512@2/2", 256, 512, 2, 3, 2, 96},
    {"512x512@1", 512, 512, 1, 3, 1, 96},     {"64x64@32", 64, 64, 32, 3, 1, 24},
    {"128x128@16", 128, 128, 16, 3, 1, 48},   {"256x256@8", 256, 256, 8, 3, 1, 96},
    {"32x32@16", 32, 32, 16, 3, 1, 96},       {"256x256@14", 256, 256, 14, 3, 1, 16},
    {"512x512@4", 512, 512, 4, 3, 1, 96},     {"32x32@32", 32, 32, 32, 3, 1, 48},
    {"stem3x64@32/2k7", 3, 64, 32, 7, 2, 96}, {"16x96@16k1", 16, 96, 16, 1, 1, 96},
    {"96x24@8k1", 96, 24, 8, 1, 1, 96},       {"320x1280@1k1", 320, 1280, 1, 1, 1, 96},
    {"3x32@112k3/2", 3, 32, 112, 3, 2, 16},
};

size_t threads() {
  const char* asked = std::getenv("TRI_BENCH_THREADS");
  return asked == nullptr ? 2 : std::stoul(asked);
}

struct Setup {
  explicit Setup(const Case& c) : pool(threads()), samples(c.samples) {
    const int64_t pad = c.kernel / 2, map = (c.map + 2 * pad - c.kernel) / c.stride + 1;
    g = {{c.map, c.map, c.in},
         {map, map, c.out},
         c.kernel,
         c.kernel,
         c.stride,
         c.stride,
         pad,
         pad,
         1};
    x.assign(static_cast<size_t>(samples * g.in.elements()), 0.5f);
    y.assign(static_cast<size_t>(samples * g.out.elements()), 0.5f);
    w.assign(static_cast<size_t>(g.weight_count()), 0.01f);
  }
  double gflop() const { return 2e-9 * static_cast<double>(g.useful_macs() * samples); }
  Stored stored(const std::vector<float>& data, const Shape& s) const {
    return {data.data(), Format::kF32, s.c, s.c, s.pixels()};
  }
  base::ThreadPool pool;
  int64_t samples;
  ConvGeometry g;
  std::vector<float> x, y, w;
  std::vector<std::byte> scratch;
};

struct Discard final : GradConsumer {
  void consume(size_t, int64_t, int64_t, const float* grad) noexcept override {
    benchmark::DoNotOptimize(grad[0]);
  }
};

void report(benchmark::State& state, const Setup& s) {
  state.counters["GFLOP/s"] =
      benchmark::Counter(s.gflop(), benchmark::Counter::kIsIterationInvariantRate);
}

// Weights are stored in fp32 and rounded on their way into the kernel.
Weights weights_of(const Setup& s, bool pairs) {
  Weights weights{s.w.data()};
  if (pairs) weights.working = Format::kBf16;
  return weights;
}

template <class Plan, auto... kProducts>
void forward(benchmark::State& state, const Case& c) {
  Setup s(c);
  const Plan plan(s.g, Direction::kForward, s.samples, kProducts...);
  s.scratch.resize(plan.scratch_bytes(s.pool.threads()));
  const Source src{s.stored(s.x, s.g.in), {}, Activation::kRelu};  // packs, as in a network
  const Sink dst{s.y.data(), Format::kF32, s.g.out.c, s.g.out.c, s.g.out.pixels()};
  const Weights weights = weights_of(s, sizeof...(kProducts) > 0);
  for (auto _ : state) conv_forward(plan, src, weights, nullptr, dst, s.scratch.data(), s.pool);
  report(state, s);
}

template <class Plan, auto... kProducts>
void backward_data(benchmark::State& state, const Case& c) {
  Setup s(c);
  const Plan plan(s.g, Direction::kBackwardData, s.samples, kProducts...);
  s.scratch.resize(plan.scratch_bytes(s.pool.threads()));
  GradSource src{s.stored(s.y, s.g.out), {s.stored(s.y, s.g.out), {}, Activation::kRelu}};
  const Sink dst{s.x.data(), Format::kF32, s.g.in.c, s.g.in.c, s.g.in.pixels()};
  const Weights weights = weights_of(s, sizeof...(kProducts) > 0);
  for (auto _ : state) conv_backward_data(plan, src, weights, dst, s.scratch.data(), s.pool);
  report(state, s);
}

template <class Plan, auto... kProducts>
void backward_weights(benchmark::State& state, const Case& c) {
  Setup s(c);
  const Plan plan(s.g, s.samples, 0, kProducts...);
  s.scratch.resize(plan.shared_bytes() + plan.worker_bytes() * s.pool.threads());
  std::vector<float> partial(s.w.size());
  const Source x{s.stored(s.x, s.g.in), {}, Activation::kRelu};
  const GradSource d{s.stored(s.y, s.g.out), {s.stored(s.y, s.g.out), {}, Activation::kRelu}};
  Discard discard;
  for (auto _ : state)
    conv_backward_weights(plan, x, d, nullptr, partial.data(), discard, s.scratch.data(), s.pool);
  report(state, s);
}

// Every worker multiplies and adds in registers: the limit of the machine as it is right now.
void fma_peak(benchmark::State& state) {
  base::ThreadPool pool(threads());
  constexpr int32_t kLength = 4096;
  const auto rows = static_cast<size_t>(outer_rows());
  std::vector<float> x(rows * 16, 0.5f), g(16 * kPanel * 4, 0.5f);
  const auto panels = static_cast<size_t>(most_outer_panels());
  std::vector<Run> runs(kLength / 16, Run{0, 0, 16});
  for (auto _ : state) {
    pool.run(pool.threads(), [&](size_t, size_t) {
      std::vector<float> sums(panels * rows * kPanel);
      for (int i = 0; i < 16; ++i)
        outer_tile({x.data(), outer_rows(), 0, 1}, {g.data(), kPanel, 0, most_outer_panels()},
                   runs.data(), runs.size(), sums.data(), static_cast<int64_t>(rows * kPanel));
      benchmark::DoNotOptimize(sums.data());
    });
  }
  state.counters["GFLOP/s"] = benchmark::Counter(
      2e-9 * 16 * kLength * static_cast<double>(panels * rows * kPanel * pool.threads()),
      benchmark::Counter::kIsIterationInvariantRate);
}

const int kRegistered = [] {
  benchmark::RegisterBenchmark("conv/fma_peak", fma_peak)->UseRealTime();
  for (const Case& c : kCases) {
    const std::string name = std::string("conv/") + c.name;
    const auto add = [&](const char* pass, void (*body)(benchmark::State&, const Case&)) {
      benchmark::RegisterBenchmark((name + "/" + pass).c_str(),
                                   [body, c](benchmark::State& state) { body(state, c); })
          ->UseRealTime()
          ->Unit(benchmark::kMicrosecond);
    };
    add("forward", forward<GatherPlan>);
    add("backward_data", backward_data<GatherPlan>);
    if (can_winograd(Setup(c).g)) {
      add("forward_winograd", forward<WinogradPlan>);
      add("backward_data_winograd", backward_data<WinogradPlan>);
      add("backward_weights_winograd", backward_weights<WinogradOuterPlan>);
    }
    add("backward_weights", backward_weights<OuterPlan>);
    if (!simd::multiplies_bf16()) continue;
    if (can_winograd(Setup(c).g)) {
      add("forward_winograd_bf16", forward<WinogradPlan, Products::kBf16>);
      add("backward_data_winograd_bf16", backward_data<WinogradPlan, Products::kBf16>);
      if (can_winograd_weights(Setup(c).g, Products::kBf16))
        add("backward_weights_winograd_bf16", backward_weights<WinogradOuterPlan, Products::kBf16>);
    }
    add("forward_bf16", forward<GatherPlan, Products::kBf16>);
    add("backward_data_bf16", backward_data<GatherPlan, Products::kBf16>);
    add("backward_weights_bf16", backward_weights<OuterPlan, Products::kBf16>);
  }
  return 0;
}();

}  // namespace
}  // namespace tri::ops
