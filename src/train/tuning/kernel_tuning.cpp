#include "train/tuning/kernel_tuning.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "train/made_up_batch.h"

namespace tri::train {
namespace {

using ops::Kernel;
using ops::Kernels;

// Three turns of two steps each show the best that either can do; a turn less where steps are long.
constexpr int kTurns = 3, kLeastTurns = 2, kStepsOfTurn = 2;
constexpr double kLongSeconds = 10;
// By less the rule is not left: it may have been chance, and runs without --tune have its bits.
constexpr double kGain = 0.97;

struct PassSeconds {
  double forward = 0, backward = 0;
};

// One table of kernels and the best time that each tick had with it.
struct Contender {
  exec::StepSpec spec;
  std::vector<int64_t> best_ns;     // by tick
  std::vector<PassSeconds> layers;  // the same, summed by layer
};

void note_times(const exec::Engine& engine, Contender& contender) {
  const exec::StepPlan& plan = engine.step_plan();
  contender.best_ns.resize(plan.ticks.size(), std::numeric_limits<int64_t>::max());
  for (size_t i = 0; i < engine.tick_ns().size(); ++i) {
    int64_t& best = contender.best_ns[i % plan.ticks.size()];  // exact clipping runs them twice
    best = std::min(best, engine.tick_ns()[i]);
  }
  // What else a layer's ticks contain (its norm, its update) is the same with every table.
  contender.layers.assign(static_cast<size_t>(engine.model().layers), {});
  for (size_t i = 0; i < plan.ticks.size(); ++i) {
    const exec::Tick& tick = plan.ticks[i];
    const int node = tick.op < 0 ? -1 : plan.graph->ops[static_cast<size_t>(tick.op)].node;
    const int layer = node < 0 ? -1 : engine.model().nodes[static_cast<size_t>(node)].layer;
    if (layer < 0 || tick.phase == exec::Phase::kUpdate) continue;
    PassSeconds& sums = contender.layers[static_cast<size_t>(layer)];
    (tick.phase == exec::Phase::kForward ? sums.forward : sums.backward) +=
        1e-9 * static_cast<double>(contender.best_ns[i]);
  }
}

Result<void> race(exec::Engine& engine, const optim::Hyper& hyper, base::ThreadPool& pool,
                  std::span<Contender> contenders) {
  const base::Stopwatch spent;
  std::ranges::fill(engine.hypers(), hyper);
  uint64_t step = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    if (turn >= kLeastTurns && spent.seconds() > kLongSeconds) return {};
    for (Contender& contender : contenders) {
      TRI_TRY(engine.replan(contender.spec));
      make_up(engine.batch(0), engine.model().classes(), 0);
      for (int i = 0; i < kStepsOfTurn; ++i) {
        engine.train(0, {.step = ++step}, pool);
        note_times(engine, contender);
      }
    }
  }
  return {};
}

// Takes the faster kernel of one pass.
void choose(Kernel& kernel, Kernel other, double seconds, double other_seconds,
            const std::string& layer, std::string_view pass, std::vector<KernelTime>& times) {
  if (kernel == other) return;
  const bool change = other_seconds < kGain * seconds;
  if (change) std::swap(kernel, other), std::swap(seconds, other_seconds);
  times.push_back({layer, pass, name(kernel), 1e3 * seconds, name(other), 1e3 * other_seconds});
}

// Where there is no choice now there may be one when the layer's precision changes.
void leave_to_rule(const exec::LayerForecast& layer, Kernels& kernels) {
  if (layer.kernels.forward == layer.others.forward) kernels.forward = ops::Kernel::kByShape;
  if (layer.kernels.backward == layer.others.backward) kernels.backward = ops::Kernel::kByShape;
}

}  // namespace

Result<KernelTuning> tune_kernels(const std::shared_ptr<const nn::Model>& model,
                                  exec::EngineOptions options, const optim::Hyper& hyper,
                                  uint64_t room, base::ThreadPool& pool) {
  options.step.kernels.clear();
  TRI_ASSIGN(auto engine, exec::Engine::plan(model, options));
  const exec::Forecast rule = engine->forecast();
  KernelTuning tuning;
  Contender contenders[2] = {{options.step, {}, {}}, {options.step, {}, {}}};
  for (const exec::LayerForecast& layer : rule.layers) {
    tuning.kernels.push_back(layer.kernels);
    contenders[1].spec.kernels.push_back(layer.others);
  }
  TRI_ASSIGN(const exec::Forecast others, engine->price(contenders[1].spec));
  const bool choice = contenders[1].spec.kernels != tuning.kernels;
  for (size_t l = 0; l < tuning.kernels.size(); ++l)
    leave_to_rule(rule.layers[l], tuning.kernels[l]);
  if (!choice || others.engine_peak_bytes > room) return tuning;

  options.most_bytes =
      std::max({options.most_bytes, rule.engine_peak_bytes, others.engine_peak_bytes});
  TRI_ASSIGN(engine, exec::Engine::plan(model, options));
  TRI_TRY(engine->obtain(0));
  TRI_TRY(race(*engine, hyper, pool, contenders));

  std::vector<Kernels> chosen;
  for (size_t l = 0; l < rule.layers.size(); ++l) {
    chosen.push_back(rule.layers[l].kernels);
    const Kernels other = contenders[1].spec.kernels[l];
    const PassSeconds &mine = contenders[0].layers[l], &its = contenders[1].layers[l];
    const std::string& layer = rule.layers[l].name;
    choose(chosen[l].forward, other.forward, mine.forward, its.forward, layer, "forward",
           tuning.times);
    choose(chosen[l].backward, other.backward, mine.backward, its.backward, layer, "backward",
           tuning.times);
    leave_to_rule(rule.layers[l], chosen[l]);
  }
  exec::StepSpec mixed = options.step;
  mixed.kernels = chosen;
  TRI_ASSIGN(const exec::Forecast forecast, engine->price(mixed));
  if (forecast.engine_peak_bytes <= room)
    tuning.kernels = std::move(chosen);
  else
    tuning.times.clear();
  return tuning;
}

std::string to_json(std::span<const KernelTime> times) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const KernelTime& time : times)
    list.push_back({{"layer", time.layer},
                    {"pass", time.pass},
                    {"kernel", time.kernel},
                    {"ms", time.ms},
                    {"other", time.other},
                    {"other_ms", time.other_ms}});
  return list.dump(1) + "\n";
}

}  // namespace tri::train
