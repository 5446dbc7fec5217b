// Depthwise convolution against a copy of 64 MB in the same run. Bytes are those that must pass:
// the source once, the result once. Shapes of MobileNet-V2 and EfficientNet-B0 at 224 and 32
// pixels; sources carry a norm and an activation, as in a network. Run: ops_benches
// --benchmark_filter=depthwise; TRI_BENCH_THREADS=2 by default.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "ops/conv2d/depthwise.h"
#include "ops/conv2d/depthwise_grad.h"
#include "simd/convert.h"

namespace tri::ops {
namespace {

struct Case {
  const char* name;
  int64_t channels, map, kernel, stride, samples;
};
constexpr Case kCases[] = {
    {"32@112k3", 32, 112, 3, 1, 16},  {"96@112k3/2", 96, 112, 3, 2, 16},
    {"144@56k3", 144, 56, 3, 1, 16},  {"144@56k5/2", 144, 56, 5, 2, 16},
    {"240@28k5", 240, 28, 5, 1, 32},  {"672@14k5", 672, 14, 5, 1, 64},
    {"1152@7k3", 1152, 7, 3, 1, 128}, {"144@8k3", 144, 8, 3, 1, 960},
    {"480@2k5", 480, 2, 5, 1, 4096},  {"1152@1k5", 1152, 1, 5, 1, 8192},
};

size_t threads() {
  const char* asked = std::getenv("TRI_BENCH_THREADS");
  return asked == nullptr ? 2 : std::stoul(asked);
}

struct Setup {
  Setup(const Case& c, Format f) : pool(threads()), samples(c.samples), format(f) {
    const int64_t pad = c.kernel / 2, map = (c.map + 2 * pad - c.kernel) / c.stride + 1;
    g = {{c.map, c.map, c.channels},
         {map, map, c.channels},
         c.kernel,
         c.kernel,
         c.stride,
         c.stride,
         pad,
         pad,
         c.channels};
    x.resize(bytes(g.in));
    y.resize(bytes(g.out));
    w.assign(static_cast<size_t>(g.weight_count()), 0.01f);
    scale.assign(static_cast<size_t>(c.channels), 0.5f);
  }
  size_t bytes(const Shape& s) const {
    return static_cast<size_t>(samples * s.elements()) * numeric::storage_bytes(format);
  }
  Stored stored(const std::vector<std::byte>& data, const Shape& s) const {
    return {data.data(), format, s.c, s.c, s.pixels()};
  }
  Source source(const std::vector<std::byte>& data, const Shape& s) const {
    return {stored(data, s), {scale.data(), scale.data(), 0, samples}, Activation::kRelu};
  }
  GradSource gradient() const {
    return {stored(y, g.out), source(y, g.out), scale.data(),
            scale.data(),     scale.data(),     scale.data()};
  }
  Sink sink(std::vector<std::byte>& data, const Shape& s) const {
    return {data.data(), format, s.c, s.c, s.pixels()};
  }
  void report(benchmark::State& state, size_t moved) const {
    state.counters["GB/s"] = benchmark::Counter(static_cast<double>(moved) * 1e-9,
                                                benchmark::Counter::kIsIterationInvariantRate);
  }
  base::ThreadPool pool;
  int64_t samples;
  Format format;
  ConvGeometry g;
  std::vector<std::byte> x, y;
  std::vector<float> w, scale;
  std::vector<std::byte> scratch;
};

struct Discard final : GradConsumer {
  void consume(size_t, int64_t, int64_t, const float* grad) noexcept override {
    benchmark::DoNotOptimize(grad[0]);
  }
};

void forward(benchmark::State& state, const Case& c, Format format) {
  Setup s(c, format);
  const DepthwisePlan plan(s.g, Direction::kForward, s.samples);
  s.scratch.resize(plan.shared_bytes() + plan.worker_bytes() * s.pool.threads());
  const Source src = s.source(s.x, s.g.in);
  const Sink dst = s.sink(s.y, s.g.out);
  for (auto _ : state)
    depthwise_forward(plan, src, {s.w.data()}, nullptr, dst, s.scratch.data(), s.pool);
  s.report(state, s.x.size() + s.y.size());
}

// Reads the gradient and the stored output, writes the gradient of the input.
void backward_data(benchmark::State& state, const Case& c, Format format) {
  Setup s(c, format);
  const DepthwisePlan plan(s.g, Direction::kBackwardData, s.samples);
  s.scratch.resize(plan.shared_bytes() + plan.worker_bytes() * s.pool.threads());
  std::vector<std::byte> stored(s.y.size());
  GradSource src = s.gradient();
  src.value.stored.data = stored.data();
  const Sink dst = s.sink(s.x, s.g.in);
  for (auto _ : state)
    depthwise_backward_data(plan, src, {s.w.data()}, dst, s.scratch.data(), s.pool);
  s.report(state, s.x.size() + 2 * s.y.size());
}

void backward_weights(benchmark::State& state, const Case& c, Format format) {
  Setup s(c, format);
  const DepthwiseGradPlan plan(s.g, s.samples, 0);
  s.scratch.resize(plan.shared_bytes() + plan.worker_bytes() * s.pool.threads());
  std::vector<std::byte> stored(s.y.size());
  const Source x = s.source(s.x, s.g.in);
  GradSource d = s.gradient();
  d.value.stored.data = stored.data();
  Discard discard;
  for (auto _ : state)
    depthwise_backward_weights(plan, x, d, nullptr, discard, nullptr, s.scratch.data(), s.pool);
  s.report(state, s.x.size() + 2 * s.y.size());
}

// 32 MB read and 32 MB written by all workers.
void copy(benchmark::State& state) {
  base::ThreadPool pool(threads());
  constexpr size_t kFloats = 8 << 20, kPiece = 64 << 10;
  std::vector<float> from(kFloats, 1.0f), to(kFloats);
  for (auto _ : state)
    pool.run(kFloats / kPiece, [&](size_t i, size_t) {
      simd::encode(Format::kF32, from.data() + i * kPiece, to.data() + i * kPiece, kPiece);
    });
  state.counters["GB/s"] = benchmark::Counter(2e-9 * kFloats * sizeof(float),
                                              benchmark::Counter::kIsIterationInvariantRate);
}

const int kRegistered = [] {
  benchmark::RegisterBenchmark("depthwise/copy", copy)->UseRealTime();
  for (const Case& c : kCases) {
    const auto add = [&](const char* pass, auto body, Format format) {
      const std::string name =
          fmt::format("depthwise/{}/{}/{}", c.name, pass, numeric::spec(format).name);
      benchmark::RegisterBenchmark(
          name.c_str(), [body, c, format](benchmark::State& state) { body(state, c, format); })
          ->UseRealTime()
          ->Unit(benchmark::kMicrosecond);
    };
    for (const Format format : {Format::kF32, Format::kBf16}) {
      add("forward", forward, format);
      add("backward_data", backward_data, format);
      add("backward_weights", backward_weights, format);
    }
  }
  return 0;
}();

}  // namespace
}  // namespace tri::ops
