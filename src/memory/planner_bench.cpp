#include <benchmark/benchmark.h>

#include <random>

#include "memory/planner.h"
#include "memory/training_graphs.h"

namespace tri::memory {
namespace {

// Time of one plan, and how far it is from its lower bound.
void solve(benchmark::State& state) {
  std::mt19937 bits(static_cast<uint32_t>(state.range(2)));
  const Draw draw = [&](uint32_t low, uint32_t high) { return low + bits() % (high - low + 1); };
  const Planner planner =
      TrainingGraph(static_cast<Family>(state.range(0)), static_cast<size_t>(state.range(1)), draw)
          .planner();
  Plan plan;
  for (auto _ : state) {
    plan = planner.solve();
    benchmark::DoNotOptimize(plan);
  }
  state.counters["buffers"] = static_cast<double>(planner.size());
  state.counters["over_%"] =
      100.0 * (static_cast<double>(plan.arena_bytes) / static_cast<double>(plan.lower_bound) - 1.0);
}
BENCHMARK(solve)
    ->ArgNames({"family", "ops", "seed"})
    ->ArgsProduct({{0, 1, 2, 3}, {60, 300}, {1, 2}})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tri::memory
