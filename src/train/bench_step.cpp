#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/philox.h"
#include "data/loader.h"
#include "train/ceiling.h"
#include "train/engine_options.h"
#include "train/governing.h"
#include "train/machine_limits.h"
#include "train/process_memory.h"
#include "train/step_pricing.h"
#include "train/trace.h"
#include "train/tuning/kernel_tuning.h"
#include "tri/bench.h"

namespace tri {
namespace {

constexpr int64_t kWarmUp = 3;

// Images of noise that cost no more than reading a file from the page cache.
class NoiseSource final : public data::Source {
 public:
  NoiseSource(tensor::Shape shape, int64_t classes, uint64_t seed)
      : Source({.name = "noise",
                .class_names = std::vector<std::string>(static_cast<size_t>(classes)),
                .shape = shape,
                .count = 4096}),
        noise_(static_cast<size_t>(shape.elements())) {
    base::Stream random(seed, base::Purpose::kSynthetic);
    for (uint8_t& pixel : noise_) pixel = static_cast<uint8_t>(random.below(256));
  }
  Result<void> read(uint64_t index, data::Record& record) const override {
    const auto turn = static_cast<std::ptrdiff_t>(index * 61 % noise_.size());
    record.pixels.resize(noise_.size());
    std::ranges::rotate_copy(noise_, noise_.begin() + turn, record.pixels.begin());
    record.label = static_cast<int32_t>(index % static_cast<uint64_t>(info().classes()));
    return {};
  }

 private:
  std::vector<uint8_t> noise_;
};

data::Normalisation plain(int64_t channels) {
  const auto count = static_cast<size_t>(channels);
  return {std::vector<float>(count, 0.5f), std::vector<float>(count, 0.25f)};
}

// As a run loads CIFAR-10.
class NoiseLoader {
 public:
  NoiseLoader(exec::Engine& engine, uint64_t seed, base::ThreadPool& pool)
      : source_(std::make_shared<NoiseSource>(engine.model().input_shape(),
                                              engine.model().classes(), seed)),
        ring_(bytes(engine)),
        loader_(source_, data::SampleOrder::shuffled(source_->info().count, seed),
                {.shape = source_->info().shape,
                 .normalisation = plain(source_->info().shape.c),
                 .augment = {.crop = 4, .flip = true},
                 .seed = seed,
                 .capacity = static_cast<size_t>(engine.spec().samples)},
                ring_, pool) {}

  static size_t bytes(const exec::Engine& engine) {
    return static_cast<size_t>(engine.spec().samples * engine.model().input_shape().elements());
  }
  Result<data::Batch> fill(const exec::BatchRoom& room) {
    return loader_.take(room.labels.size(), {room.x, room.labels, room.samples});
  }

 private:
  std::shared_ptr<const NoiseSource> source_;
  std::vector<std::byte> ring_;
  data::Loader loader_;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

struct Times {
  std::vector<double> whole, data, forward, backward, update;  // ms
};

Result<Times> time_steps(exec::Engine& engine, NoiseLoader& loader, int64_t steps,
                         base::ThreadPool& pool) {
  Times times;
  for (int64_t step = 1; step <= kWarmUp + steps; ++step) {
    const base::Stopwatch watch;
    TRI_TRY(loader.fill(engine.batch(0)));
    const double loaded = watch.seconds();
    engine.train(0, {static_cast<uint64_t>(step)}, pool);
    if (step <= kWarmUp) continue;
    times.whole.push_back(1e3 * watch.seconds());
    times.data.push_back(1e3 * loaded);
    const exec::PhaseSeconds phases = engine.phases();
    times.forward.push_back(1e3 * phases.forward);
    times.backward.push_back(1e3 * phases.backward);
    times.update.push_back(1e3 * phases.update);
  }
  return times;
}

// What steering costs a step on average: what it sees of each one, a decision per window and an
// estimate of curvature, in which a batch must lie.
double control_ms(const Config& config, exec::Engine& engine, base::ThreadPool& pool) {
  const control::Governor governor = train::make_governor(config, engine.model());
  control::GovernorState state = governor.start();
  const train::StepPricing pricing(config, engine, {0, [](int64_t) { return uint64_t{0}; }});
  const exec::StepReport& report = engine.train(0, {1}, pool);
  const base::Stopwatch each;
  control::Signals signals = train::signals_of(engine, report, config.batch);
  signals.ceiling_bytes = std::numeric_limits<uint64_t>::max();
  governor.watch(state, signals, pricing.prices());
  double seconds = each.seconds();
  const base::Stopwatch window;
  governor.decide(state, pricing.prices());
  seconds += window.seconds() / static_cast<double>(config.control_every);
  if (engine.forecast().curvature_samples > 0) {
    const base::Stopwatch estimate;
    engine.curvature(0, 1, pool);
    seconds += estimate.seconds() / static_cast<double>(config.curvature_every);
  }
  return 1e3 * seconds;
}

// The kernels of `engine`, sums over taps in the place of Winograd.
std::vector<ops::Kernels> without_winograd(const exec::Engine& engine) {
  std::vector<ops::Kernels> kernels;
  for (const exec::LayerForecast& layer : engine.forecast().layers) {
    const auto instead = [](ops::Kernel kernel) {
      return kernel == ops::Kernel::kWinograd ? ops::Kernel::kDirect : kernel;
    };
    kernels.push_back({instead(layer.kernels.forward), instead(layer.kernels.backward)});
  }
  return kernels;
}

// Fails with kDoesNotFit, otherwise says how many bytes the engine may have.
Result<uint64_t> room_of(const ResolvedConfig& resolved, exec::Engine& engine, size_t threads) {
  TRI_ASSIGN(const uint64_t ceiling,
             train::ceiling_bytes(resolved.config.memory, memory::Probes()));
  TRI_ASSIGN(const uint64_t base, train::process_base_bytes(threads));
  const uint64_t besides =
      base + NoiseLoader::bytes(engine) + train::pieces_bytes(engine.parameters());
  if (besides + engine.forecast().engine_peak_bytes <= ceiling) return ceiling - besides;
  return unexpected(
      ErrorCode::kDoesNotFit,
      fmt::format("a batch of {} needs {}, but the ceiling is {}; give more --memory or a smaller "
                  "--batch ('plan' shows what a training would do)",
                  resolved.config.batch,
                  base::format_bytes(besides + engine.forecast().engine_peak_bytes),
                  base::format_bytes(ceiling)));
}

}  // namespace

Result<StepBench> bench_step(const ResolvedConfig& resolved) {
  const Config config = train::without_data(resolved);
  TRI_ASSIGN(const auto model, train::model_of(config));
  TRI_ASSIGN(exec::EngineOptions options, train::engine_options(config, *model));
  TRI_ASSIGN(auto engine, train::plan_engine(config, model, options));
  if (config.direct) {
    options.step.kernels = without_winograd(*engine);
    TRI_ASSIGN(engine, train::plan_engine(config, model, options));
  }
  TRI_ASSIGN(const uint64_t room, room_of(resolved, *engine, options.step.threads));
  if (!config.profile.empty()) TRI_TRY(train::begin_trace(config.profile));
  base::ThreadPool pool(options.step.threads);
  StepBench bench;
  if (config.tune) {
    options.step = engine->spec();
    TRI_ASSIGN(train::KernelTuning tuning,
               train::tune_kernels(model, options, train::hyper_of(config), room, pool));
    options.step.kernels = std::move(tuning.kernels);
    bench.kernels = std::move(tuning.times);
    TRI_ASSIGN(engine, exec::Engine::plan(model, options));
  }
  const auto seed = static_cast<uint64_t>(config.seed);
  TRI_TRY(engine->obtain(seed));
  std::ranges::fill(engine->hypers(), train::hyper_of(config));
  NoiseLoader loader(*engine, seed, pool);
  bench.peak_gflops = train::fma_peak_gflops(pool);
  bench.handover_ns = train::handover_ns();
  TRI_ASSIGN(const Times times, time_steps(*engine, loader, config.steps, pool));
  bench.handover_ns = std::max(bench.handover_ns, train::handover_ns());
  bench.peak_gflops = std::max(bench.peak_gflops, train::fma_peak_gflops(pool));
  if (!config.profile.empty()) TRI_TRY(train::write_trace(config.profile, *engine));
  bench.phases.control = control_ms(config, *engine, pool);
  engine->evaluate(0, engine->forecast().eval_samples, pool);  // belongs to the peak too

  bench.ms_per_step = median(times.whole);
  bench.images_per_second = 1e3 * static_cast<double>(config.batch) / bench.ms_per_step;
  bench.engine_peak_bytes = engine->measured_peak_bytes();
  bench.process_peak_bytes = train::process_peak_bytes();
  bench.useful_gflop = engine->forecast().useful_gflop;
  bench.gflops = 1e3 * bench.useful_gflop / bench.ms_per_step;
  bench.fraction_of_peak = bench.gflops / bench.peak_gflops;
  bench.phases.data = median(times.data);
  bench.phases.forward = median(times.forward);
  bench.phases.backward = median(times.backward);
  bench.phases.update = median(times.update);
  return bench;
}

}  // namespace tri
