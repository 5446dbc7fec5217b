// The two curvature estimators side by side: fisher (the default) and its judge, the Hessian by
// power iteration, on the same batches of a trained network. Writes JSON: lambda_max per layer,
// mean over batches, and the rank correlation across layers.
//
//   curvature_compare CHECKPOINT [SAMPLES] [BATCHES] [ITERATIONS] [DATA]
//
// CHECKPOINT: a run's directory or one of its checkpoints. 32 samples, 4 batches, 20 iterations and
// the data of the run by default. Memory is no matter here: nothing is shrunk.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/loader.h"
#include "exec/engine.h"
#include "train/checkpoint_path.h"
#include "train/engine_options.h"
#include "train/model_file.h"

namespace tri {
namespace {

using exec::Estimator;

struct Arguments {
  std::string checkpoint;
  int64_t samples = 32, batches = 4, iterations = 20;
  std::string data;
};

std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> rank(values.size());
  for (size_t i = 0; i < order.size(); ++i) rank[order[i]] = static_cast<double>(i);
  return rank;
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto n = static_cast<double>(a.size());
  const double mean_a = std::accumulate(a.begin(), a.end(), 0.0) / n;
  const double mean_b = std::accumulate(b.begin(), b.end(), 0.0) / n;
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean_a) * (b[i] - mean_b);
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return ab / std::sqrt(aa * bb);
}

// An engine that only measures, with the weights of a checkpoint.
Result<std::unique_ptr<exec::Engine>> load(const train::ModelCard& card, const std::string& file,
                                           const Arguments& arguments, Estimator estimator) {
  Config config;
  config.model = card.model;
  config.width = card.width;
  TRI_ASSIGN(const auto model,
             train::model_of(config, {card.image, static_cast<int64_t>(card.class_names.size())}));
  exec::EngineOptions options;
  options.step.samples = arguments.samples;
  options.step.threads = train::threads_of(config);
  options.step.mode = exec::StepMode::kFused;
  options.forms.moments = 0;
  options.batch_buffers = 1;
  options.curvature.estimator = estimator;
  options.curvature.samples = arguments.samples;
  options.curvature.shrinks = false;
  options.curvature.top = 1;
  options.curvature.iterations = arguments.iterations;
  TRI_ASSIGN(auto engine, exec::Engine::plan(model, options));
  TRI_TRY(engine->obtain(0));
  TRI_TRY(train::read_model(file, engine->parameters(), false));
  return engine;
}

Result<nlohmann::json> compare(const Arguments& arguments) {
  TRI_ASSIGN(const train::SavedModel saved, train::find_model(arguments.checkpoint));
  if (!saved.state)
    return unexpected(ErrorCode::kInvalid,
                      fmt::format("'{}' has no state beside it; name a checkpoint of a run",
                                  arguments.checkpoint));
  const train::ModelCard& card = saved.state->card;
  const std::string& spec = arguments.data.empty() ? card.data : arguments.data;
  TRI_ASSIGN(const data::Dataset set,
             data::open_dataset(spec, {.pixels = card.image.h, .val_split = card.val_split}));
  TRI_ASSIGN(const auto fisher, load(card, saved.file, arguments, Estimator::kFisher));
  TRI_ASSIGN(const auto hessian, load(card, saved.file, arguments, Estimator::kHessian));
  base::ThreadPool pool(fisher->step_plan().spec.threads);
  const auto samples = static_cast<size_t>(arguments.samples);
  const data::SourceInfo& info = set.train->info();
  std::vector<std::byte> ring(data::Loader::ring_bytes(info, samples));
  data::Loader loader(
      set.train, data::SampleOrder::shuffled(info.count, 0),
      {.shape = card.image, .normalisation = card.normalisation, .capacity = samples}, ring, pool);

  const auto layers = fisher->forecast().layers.size();
  std::vector<double> by_fisher(layers), by_hessian(layers);
  nlohmann::json json;
  for (int64_t batch = 0; batch < arguments.batches; ++batch) {
    const exec::BatchRoom room = fisher->batch(0), same = hessian->batch(0);
    TRI_TRY(loader.take(samples, {room.x, room.labels, room.samples}));
    std::ranges::copy(room.x, same.x.begin());
    std::ranges::copy(room.labels, same.labels.begin());
    std::ranges::copy(room.samples, same.samples.begin());
    const auto step = static_cast<uint64_t>(batch);
    const exec::CurvatureReport& drawn = fisher->curvature(0, step, pool);
    const exec::CurvatureReport& exact = hessian->curvature(0, step, pool);
    for (size_t l = 0; l < layers; ++l) {
      by_fisher[l] += drawn.layers[l].eigenvalues[0] / static_cast<double>(arguments.batches);
      by_hessian[l] += exact.layers[l].eigenvalues[0] / static_cast<double>(arguments.batches);
    }
    json["losses"].push_back(drawn.loss);
    json["noise_scales"].push_back(drawn.noise.scale);
  }
  for (size_t l = 0; l < layers; ++l)
    json["layers"].push_back({{"name", fisher->forecast().layers[l].name},
                              {"fisher", by_fisher[l]},
                              {"hessian", by_hessian[l]}});
  json["step"] = saved.state->step;
  json["samples"] = arguments.samples;
  json["batches"] = arguments.batches;
  json["iterations"] = arguments.iterations;
  json["rank_correlation"] = correlation(ranks(by_fisher), ranks(by_hessian));
  return json;
}

int run(int count, char** words) {
  if (count < 2) {
    std::cerr << "curvature_compare CHECKPOINT [SAMPLES] [BATCHES] [ITERATIONS] [DATA]\n";
    return 2;
  }
  Arguments arguments;
  arguments.checkpoint = words[1];
  if (count > 2) arguments.samples = std::stoll(words[2]);
  if (count > 3) arguments.batches = std::stoll(words[3]);
  if (count > 4) arguments.iterations = std::stoll(words[4]);
  if (count > 5) arguments.data = words[5];
  const Result<nlohmann::json> done = compare(arguments);
  if (!done) {
    std::cerr << done.error().message << "\n";
    return 1;
  }
  std::cout << done->dump(2) << "\n";
  return 0;
}

}  // namespace
}  // namespace tri

int main(int count, char** words) { return tri::run(count, words); }
