// Update kernels in bytes moved per second (each part of weights and state read and written, the
// gradient read), to be read against Copy of the same run: the bar is 70 % of it.
#include <benchmark/benchmark.h>

#include <cstring>

#include "optim/param_fixture.h"

namespace tri::optim {
namespace {

// More than 64 MB in every form, so that no cache holds it.
constexpr size_t kCount = size_t{16} << 20;

void Copy(benchmark::State& state) {
  const size_t bytes = size_t{96} << 20;
  std::vector<char> source(bytes, 1), target(bytes, 2);
  for (auto _ : state) {
    std::memcpy(target.data(), source.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * 2 * bytes));
}
BENCHMARK(Copy)->Unit(benchmark::kMillisecond);

void Update(benchmark::State& state, Rule rule, Form form) {
  Param param(rule, form.weight, form.state, random_floats(kCount, 1, 1.0));
  const std::vector<float> grad = random_floats(kCount, 2, 0.1);
  const Coefficients c = coefficients(rule, {.lr = 1e-3, .weight_decay = 1e-4});
  Noise noise;
  for (auto _ : state) {
    ++noise.step;
    benchmark::DoNotOptimize(param.step(c, grad.data(), noise));
  }
  const size_t bytes = 2 * weight_bytes(form.weight, kCount) +
                       2 * state_bytes(form.state, kCount, moments(rule)) + sizeof(float) * kCount;
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * bytes));
}

const bool kRegistered = [] {
  for (const Rule rule : {Rule::kSgd, Rule::kAdamW}) {
    for (const Form form : kForms) {
      benchmark::RegisterBenchmark(("Update/" + form.text(rule)).c_str(), Update, rule, form)
          ->Unit(benchmark::kMillisecond);
    }
  }
  return true;
}();

}  // namespace
}  // namespace tri::optim
