#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "base/philox.h"
#include "train/ceiling.h"
#include "train/engine_options.h"
#include "train/machine_limits.h"
#include "train/process_memory.h"
#include "train/trace.h"
#include "tri/bench.h"
#include "tri/plan.h"

namespace tri {
namespace {

constexpr int64_t kWarmUp = 3;

void make_up(const exec::BatchRoom& room, int64_t classes, uint64_t seed) {
  base::Stream random(seed, base::Purpose::kSynthetic);
  for (float& pixel : room.x) pixel = 2 * random.uniform() - 1;
  for (size_t i = 0; i < room.labels.size(); ++i) {
    room.labels[i] = static_cast<int32_t>(random.below(static_cast<uint32_t>(classes)));
    room.samples[i] = i;
  }
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

struct Times {
  std::vector<double> whole, forward, backward, update;  // ms
};

Times time_steps(exec::Engine& engine, int64_t steps, base::ThreadPool& pool) {
  Times times;
  for (int64_t step = 1; step <= kWarmUp + steps; ++step) {
    const base::Stopwatch watch;
    engine.train(0, {static_cast<uint64_t>(step)}, pool);
    if (step <= kWarmUp) continue;
    times.whole.push_back(1e3 * watch.seconds());
    const exec::PhaseSeconds phases = engine.phases();
    times.forward.push_back(1e3 * phases.forward);
    times.backward.push_back(1e3 * phases.backward);
    times.update.push_back(1e3 * phases.update);
  }
  return times;
}

Result<void> check_fit(const ResolvedConfig& resolved, exec::Engine& engine, size_t threads) {
  TRI_ASSIGN(const uint64_t ceiling,
             train::ceiling_bytes(resolved.config.memory, memory::Probes()));
  TRI_ASSIGN(const uint64_t base, train::process_base_bytes(threads));
  const uint64_t need =
      base + engine.forecast().engine_peak_bytes + train::pieces_bytes(engine.parameters());
  if (need <= ceiling) return {};
  TRI_ASSIGN(const MemoryPlan plan, plan_memory(resolved));
  return unexpected(ErrorCode::kDoesNotFit, refusal(plan));
}

}  // namespace

Result<StepBench> bench_step(const ResolvedConfig& resolved) {
  const Config config = train::without_data(resolved);
  TRI_ASSIGN(const auto model, train::model_of(config));
  TRI_ASSIGN(const exec::EngineOptions options, train::engine_options(config, *model));
  TRI_ASSIGN(const auto engine, train::plan_engine(config, model, options));
  TRI_TRY(check_fit(resolved, *engine, options.step.threads));
  const auto seed = static_cast<uint64_t>(config.seed);
  TRI_TRY(engine->obtain(seed));
  std::ranges::fill(engine->hypers(), train::hyper_of(config));
  make_up(engine->batch(0), model->classes(), seed);

  base::ThreadPool pool(options.step.threads);
  StepBench bench;
  bench.peak_gflops = train::fma_peak_gflops(pool);
  const Times times = time_steps(*engine, config.steps, pool);
  bench.peak_gflops = std::max(bench.peak_gflops, train::fma_peak_gflops(pool));
  if (!config.profile.empty()) TRI_TRY(train::write_trace(config.profile, *engine));
  // They belong to the peak too.
  engine->evaluate(0, engine->forecast().eval_samples, pool);
  if (const int64_t samples = engine->forecast().curvature_samples; samples > 0)
    engine->curvature(0, samples, 1, pool);

  bench.ms_per_step = median(times.whole);
  bench.images_per_second = 1e3 * static_cast<double>(config.batch) / bench.ms_per_step;
  bench.engine_peak_bytes = engine->measured_peak_bytes();
  bench.process_peak_bytes = train::process_peak_bytes();
  bench.useful_gflop = engine->forecast().useful_gflop;
  bench.gflops = 1e3 * bench.useful_gflop / bench.ms_per_step;
  bench.fraction_of_peak = bench.gflops / bench.peak_gflops;
  bench.phases.forward = median(times.forward);
  bench.phases.backward = median(times.backward);
  bench.phases.update = median(times.update);
  return bench;
}

}  // namespace tri
