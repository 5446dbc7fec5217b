#include "contract/trial.h"

#include <fmt/format.h>

#include <cmath>

#include "base/check.h"
#include "base/philox.h"

namespace tri::contract {
namespace {

// Plain code's error is one draw of many, and may happen to be small.
constexpr double kSlack = 16.0;

}  // namespace

double norm(const Numbers& values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return std::sqrt(sum);
}

Problem draw_problem(const nn::Model& model, uint64_t seed, int64_t samples, int64_t ghost) {
  base::Stream random(seed, base::Purpose::kInit, 1);
  const auto draw = [&random](double center, double spread) {
    return double{static_cast<float>(center + spread * (2.0 * double{random.uniform()} - 1.0))};
  };
  Problem problem;
  problem.samples = samples;
  problem.ghost = ghost;
  problem.seed = seed;
  problem.smoothing = seed % 2 == 0 ? 0.0 : double{0.1f};
  for (const nn::Parameter& p : model.parameters) {
    Numbers values(static_cast<size_t>(p.elements()));
    const int64_t inputs = p.elements() / p.dims.front();
    const auto fan_in = static_cast<double>(inputs);
    for (double& v : values) {
      if (p.role == nn::ParamRole::kNormWeight)
        v = draw(1.0, 0.3);
      else if (p.dims.size() == 1)
        v = draw(0.0, 0.3);
      else
        v = draw(0.0, std::sqrt(3.0 / fan_in));
    }
    problem.parameters.push_back(std::move(values));
  }
  problem.x.resize(static_cast<size_t>(samples * model.input_shape().elements()));
  for (double& v : problem.x) v = draw(0.0, 1.5);
  for (int64_t n = 0; n < samples; ++n) {
    problem.labels.push_back(
        static_cast<int32_t>(random.below(static_cast<uint32_t>(model.classes()))));
    problem.ids.push_back(random.next());
  }
  return problem;
}

std::unique_ptr<exec::Engine> engine_for(std::shared_ptr<const nn::Model> model,
                                         const Problem& problem, exec::EngineOptions options) {
  options.step.samples = problem.samples;
  options.step.ghost = problem.ghost;
  options.step.label_smoothing = static_cast<float>(problem.smoothing);
  auto planned = exec::Engine::plan(std::move(model), options);
  TRI_CHECK(planned.has_value(), "{}", planned.error().message);
  std::unique_ptr<exec::Engine> engine = *std::move(planned);
  TRI_CHECK(engine->obtain(problem.seed).has_value());
  for (size_t p = 0; p < problem.parameters.size(); ++p) {
    const Numbers& values = problem.parameters[p];
    engine->parameters().set(p, std::vector<float>(values.begin(), values.end()));
  }
  const exec::BatchRoom room = engine->batch(0);
  std::copy(problem.x.begin(), problem.x.end(), room.x.begin());
  std::copy(problem.labels.begin(), problem.labels.end(), room.labels.begin());
  std::copy(problem.ids.begin(), problem.ids.end(), room.samples.begin());
  return engine;
}

std::vector<std::vector<float>> gradients(const exec::Engine& engine) {
  std::vector<std::vector<float>> all;
  for (size_t p = 0; p < engine.model().parameters.size(); ++p) {
    all.emplace_back(static_cast<size_t>(engine.model().parameters[p].elements()));
    engine.gradient(p, all.back());
  }
  return all;
}

std::vector<std::vector<float>> weights(exec::Engine& engine) {
  std::vector<std::vector<float>> all;
  for (size_t p = 0; p < engine.model().parameters.size(); ++p) {
    all.emplace_back(static_cast<size_t>(engine.model().parameters[p].elements()));
    engine.parameters().get(p, all.back());
  }
  return all;
}

std::vector<float> logits(const exec::Engine& engine, int64_t samples) {
  std::vector<float> all(static_cast<size_t>(samples * engine.model().classes()));
  engine.logits(all);
  return all;
}

std::string compare(const std::string& name, const Numbers& want, const Numbers& plain,
                    double roundings, std::span<const float> got) {
  Numbers off(want.size()), may(want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    off[i] = double{got[i]} - want[i];
    may[i] = plain[i] - want[i];
  }
  const double bound = kSlack * norm(may) + roundings;
  if (norm(off) <= bound) return {};
  return fmt::format("{} is off by {:.3g} of {:.3g}, and {:.3g} is allowed", name, norm(off),
                     norm(want), bound);
}

}  // namespace tri::contract
