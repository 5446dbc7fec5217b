// Training steps of a residual network as deep as one likes, which the catalog has not: a stem and
// BLOCKS blocks of two 3x3 convolutions of 64 channels on 32x32 images. Writes JSON with keys of
// `triaccel bench step`.
//
//   depth_step BLOCKS [BATCH] [THREADS] [STEPS]
#include <tri/graph.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.h"
#include "exec/engine.h"
#include "nn/model.h"
#include "train/made_up_batch.h"

namespace tri {
namespace {

Result<Network> residual_network(int64_t blocks) {
  const ConvOptions conv{.out = 64, .kernel = 3, .padding = 1, .bias = false};
  Graph graph("deep", {.height = 32, .width = 32, .channels = 3});
  const auto normed = [&](Tensor x, const std::string& name) {
    return graph.batch_norm(graph.conv(x, name + ".conv", conv), name + ".bn");
  };
  Tensor x = graph.max_pool(graph.relu(normed(graph.input(), "stem")), {.kernel = 2});
  for (int64_t i = 0; i < blocks; ++i) {
    const std::string name = "block" + std::to_string(i);
    const Tensor y = normed(graph.relu(normed(x, name + ".0")), name + ".1");
    x = graph.relu(graph.add(y, x, name + ".add"));
  }
  return graph.finish(graph.linear(graph.global_avg_pool(x), "fc", {.out = 10}));
}

Result<nlohmann::ordered_json> time_steps(int64_t blocks, int64_t batch, size_t threads,
                                          int64_t steps) {
  constexpr int64_t kWarmUp = 2;
  TRI_ASSIGN(const Network network, residual_network(blocks));
  exec::EngineOptions options;
  options.step.samples = batch;
  options.step.threads = threads;
  options.step.mode = exec::StepMode::kFused;
  options.forms = {optim::WeightForm::kF32, optim::StateForm::kF32, 1};
  options.batch_buffers = 1;
  TRI_ASSIGN(const auto engine,
             exec::Engine::plan(std::make_shared<const nn::Model>(nn::model_of(network)), options));
  TRI_TRY(engine->obtain(1));
  std::ranges::fill(engine->hypers(), optim::Hyper{.lr = 1e-3});
  train::make_up(engine->batch(0), network.classes(), 1);
  base::ThreadPool pool(threads);
  std::vector<double> ms;
  for (int64_t step = 1; step <= kWarmUp + steps; ++step) {
    const base::Stopwatch watch;
    engine->train(0, {.step = static_cast<uint64_t>(step)}, pool);
    if (step > kWarmUp) ms.push_back(1e3 * watch.seconds());
  }
  std::ranges::nth_element(ms, ms.begin() + static_cast<std::ptrdiff_t>(ms.size() / 2));
  return nlohmann::ordered_json{{"ms_per_step", ms[ms.size() / 2]},
                                {"engine_peak_bytes", engine->measured_peak_bytes()},
                                {"useful_gflop", engine->forecast().useful_gflop}};
}

}  // namespace
}  // namespace tri

int main(int argc, char** argv) {
  const auto number = [&](int index, int64_t otherwise) {
    return index < argc ? std::max<int64_t>(1, std::atoll(argv[index])) : otherwise;
  };
  const auto timed =
      tri::time_steps(number(1, 4), number(2, 32), static_cast<size_t>(number(3, 2)), number(4, 5));
  if (!timed) {
    std::cerr << timed.error().message << "\n";
    return 1;
  }
  std::cout << timed->dump() << "\n";
  return 0;
}
