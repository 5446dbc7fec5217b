// What a curvature pass costs beside a training step: ResNet-18 at 32 pixels and batch 96, 2
// threads. Counters: `steps` of training that the pass is worth, measured in turns with it, and
// `peak_added`, its share of the engine's peak. With T = 200 a pass may cost 2 steps (fisher) or 50
// (hessian). Run: exec_benches --benchmark_filter=curvature
#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "exec/engine.h"
#include "nn/catalog.h"

namespace tri::exec {
namespace {

constexpr int64_t kBatch = 96;
constexpr size_t kThreads = 2;

std::unique_ptr<Engine> make_engine(const char* name, const CurvatureSpec& curvature) {
  nn::ModelOptions sizes;
  sizes.height = sizes.width = 32;
  Result<nn::Model> model = nn::build(name, sizes);
  EngineOptions options;
  options.step.samples = kBatch;
  options.step.ghost = 32;
  options.step.threads = kThreads;
  options.step.mode = StepMode::kFused;
  options.curvature = curvature;
  return *Engine::plan(std::make_shared<const nn::Model>(*std::move(model)), options);
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

void measure(benchmark::State& state, const char* name, const CurvatureSpec& spec) {
  const auto engine = make_engine(name, spec);
  if (!engine->obtain(1)) return state.SkipWithError("no memory");
  const BatchRoom room = engine->batch(0);
  for (size_t i = 0; i < room.x.size(); ++i)
    room.x[i] = static_cast<float>(i * 2654435761u % 1000) * 0.002f - 1.0f;
  for (size_t n = 0; n < room.labels.size(); ++n) {
    room.labels[n] = static_cast<int32_t>(n % 10);
    room.samples[n] = n;
  }
  base::ThreadPool pool(kThreads);
  const int64_t samples = engine->forecast().curvature_samples;
  uint64_t step = 0;
  std::vector<double> steps, passes;
  const auto timed = [](std::vector<double>& all, auto work) {
    const int64_t before = base::now_ns();
    work();
    all.push_back(static_cast<double>(base::now_ns() - before));
  };
  engine->train(0, {++step}, pool);
  for (auto _ : state) {
    timed(steps, [&] { engine->train(0, {++step}, pool); });
    timed(passes, [&] { engine->curvature(0, step, pool); });
    state.SetIterationTime(1e-9 * passes.back());
  }
  CurvatureSpec none;
  const auto without = static_cast<double>(make_engine(name, none)->forecast().engine_peak_bytes);
  const auto with = static_cast<double>(engine->forecast().engine_peak_bytes);
  state.counters["steps"] = median(passes) / median(steps);
  state.counters["step_ms"] = 1e-6 * median(steps);
  state.counters["samples"] = static_cast<double>(samples);
  state.counters["peak_added"] = with / without - 1;
}

CurvatureSpec fisher(bool noise) {
  CurvatureSpec spec;
  spec.estimator = Estimator::kFisher;
  spec.noise = noise;
  return spec;
}

void curvature_fisher(benchmark::State& state, const char* name) {
  measure(state, name, fisher(false));
}
void curvature_fisher_and_noise(benchmark::State& state, const char* name) {
  measure(state, name, fisher(true));
}

void curvature_hessian(benchmark::State& state, const char* name) {
  CurvatureSpec spec;
  spec.shrinks = false;
  spec.estimator = Estimator::kHessian;
  spec.top = 1;
  spec.iterations = 3;
  spec.tolerance = 0;
  measure(state, name, spec);
}

BENCHMARK_CAPTURE(curvature_hessian, resnet18, "resnet18")
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->Iterations(3);
BENCHMARK_CAPTURE(curvature_fisher, resnet18, "resnet18")
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->Iterations(9);
BENCHMARK_CAPTURE(curvature_fisher_and_noise, resnet18, "resnet18")
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->Iterations(9);
BENCHMARK_CAPTURE(curvature_fisher_and_noise, resnet18_cifar, "resnet18-cifar")
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->Iterations(2);
BENCHMARK_CAPTURE(curvature_fisher_and_noise, efficientnet_b0, "efficientnet-b0")
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->Iterations(5);

}  // namespace
}  // namespace tri::exec
