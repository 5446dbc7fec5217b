// Random networks: loss, logits, every gradient and the running statistics against the definition
// in double precision, whose gradients are themselves checked by central differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/philox.h"
#include "contract/random_graph.h"
#include "contract/trial.h"

namespace tri::contract {
namespace {

// Values this near to a kink may fall on its other side in fp32; another batch is drawn.
constexpr double kNearKink = 1e-4;

// A few roundings of a sum's terms.
constexpr double kFew = 0x1p-20;

// Ghost batches of three: over two values a norm's gradient is nothing but what eps leaves of it.
constexpr int64_t kGradientSamples = 6;

struct Drawn {
  std::shared_ptr<const nn::Model> model;
  Problem problem;
  Solution exact;
};

Drawn draw(uint64_t seed) {
  Drawn drawn{random_network(seed), {}, {}};
  for (uint64_t attempt = 0; attempt < 50; ++attempt) {
    const int64_t ghost = seed % 3 == 0 ? kGradientSamples / 2 : 0;
    drawn.problem = draw_problem(*drawn.model, seed * 100 + attempt, kGradientSamples, ghost);
    drawn.exact = solve(*drawn.model, drawn.problem);
    if (drawn.exact.margin > kNearKink) break;
  }
  return drawn;
}

// The judge judged: reverse mode against central differences of its own loss.
TEST(Interpreter, agrees_with_central_differences) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Drawn drawn = draw(seed);
    if (drawn.exact.margin <= kNearKink) continue;
    base::Stream random(seed, base::Purpose::kShuffle);
    for (size_t p = 0; p < drawn.problem.parameters.size(); ++p) {
      const size_t at = random.below(static_cast<uint32_t>(drawn.problem.parameters[p].size()));
      double& weight = drawn.problem.parameters[p][at];
      const double before = weight, h = 1e-6;  // far below kNearKink
      weight = before + h;
      const double up = solve(*drawn.model, drawn.problem).loss;
      weight = before - h;
      const double down = solve(*drawn.model, drawn.problem).loss;
      weight = before;
      // The third derivative times h^2, and the rounding of the losses over h.
      EXPECT_NEAR(drawn.exact.gradients[p][at], (up - down) / (2 * h), 1e-7)
          << "seed " << seed << " " << drawn.model->parameters[p].name;
    }
  }
}

class RandomNetwork : public testing::TestWithParam<uint64_t> {};

std::string describe(const nn::Model& model) {
  std::string text;
  for (const nn::Node& node : model.nodes) {
    text += node.name + " = " + std::string(ops::name(node.kind)) + "(";
    for (const int input : node.inputs) text += model.nodes[static_cast<size_t>(input)].name + " ";
    text += ") " + node.shape.text() + "\n";
  }
  return text;
}

TEST_P(RandomNetwork, engine_agrees_with_the_definition) {
  base::ThreadPool pool(2), three(3);
  int used = 0;
  const uint64_t first = GetParam() * 4;
  for (uint64_t seed = first; seed < first + 4; ++seed) {
    const Drawn drawn = draw(seed);
    if (drawn.exact.margin <= kNearKink) continue;
    ++used;
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + describe(*drawn.model));
    Problem in_single = drawn.problem;
    in_single.single = true;
    const Solution single = solve(*drawn.model, in_single);

    exec::EngineOptions options;
    options.batch_buffers = 2;  // a good and a bad batch
    options.step.threads = 3;
    options.step.update = false;
    const auto engine = engine_for(drawn.model, drawn.problem, options);
    const double loss = engine->train(0, {1}, pool).loss.loss / kGradientSamples;
    // A sample's loss moves by at most twice what its logits move.
    double moved = 0;
    for (size_t i = 0; i < single.logits.size(); ++i)
      moved = std::max(moved, std::abs(single.logits[i] - drawn.exact.logits[i]));
    EXPECT_NEAR(loss, drawn.exact.loss, 16 * 2 * moved + kFew * norm(drawn.exact.logits));
    EXPECT_EQ(compare("logits", drawn.exact.logits, single.logits, kFew * norm(drawn.exact.logits),
                      logits(*engine, kGradientSamples)),
              "");
    const auto got = gradients(*engine);
    for (size_t p = 0; p < got.size(); ++p)
      EXPECT_EQ(compare(drawn.model->parameters[p].name, drawn.exact.gradients[p],
                        single.gradients[p], kFew * norm(drawn.exact.magnitudes[p]), got[p]),
                "");
    for (size_t n = 0; n < drawn.model->nodes.size(); ++n) {
      if (drawn.model->nodes[n].kind != ops::OpKind::kBatchNorm) continue;
      const auto node = static_cast<int>(n);
      EXPECT_EQ(compare("running mean", drawn.exact.running_mean[n], single.running_mean[n],
                        kFew * norm(drawn.exact.running_variance[n]),
                        engine->parameters().running_mean(node)),
                "");
      EXPECT_EQ(compare("running variance", drawn.exact.running_variance[n],
                        single.running_variance[n], kFew * norm(drawn.exact.running_variance[n]),
                        engine->parameters().running_variance(node)),
                "");
    }
    EXPECT_EQ(engine->measured_peak_bytes(), engine->forecast().engine_peak_bytes);

    // Evaluation: running statistics, no masks.
    Problem evaluation = drawn.problem, evaluation_single = in_single;
    evaluation.training = evaluation_single.training = false;
    const Solution eval = solve(*drawn.model, evaluation, &drawn.exact);
    const Solution eval_single = solve(*drawn.model, evaluation_single, &single);
    const int64_t count = engine->forecast().eval_samples;
    engine->evaluate(0, count, pool);
    const auto some = static_cast<std::ptrdiff_t>(count * drawn.model->classes());
    EXPECT_EQ(compare("evaluation", {eval.logits.begin(), eval.logits.begin() + some},
                      {eval_single.logits.begin(), eval_single.logits.begin() + some},
                      kFew * norm(eval.logits), logits(*engine, count)),
              "");

    // Whatever a step leaves behind, the next one does not see it.
    const exec::BatchRoom poison = engine->batch(1);
    std::ranges::fill(poison.x, std::numeric_limits<float>::quiet_NaN());
    std::ranges::fill(poison.labels, 0);
    engine->train(1, {1}, pool);
    engine->train(0, {1}, pool);
    EXPECT_EQ(got, gradients(*engine));

    // The same bits if transformed values are stored, and on other threads.
    options.store = true;
    const auto stored = engine_for(drawn.model, drawn.problem, options);
    stored->train(0, {1}, three);
    EXPECT_EQ(got, gradients(*stored));
  }
  EXPECT_GT(used, 0);
}

// Any mixture of formats: what rounding every value to the coarsest of them does is what is
// allowed.
TEST_P(RandomNetwork, engine_in_narrow_formats_stays_near_the_definition) {
  using numeric::Format;
  base::ThreadPool pool(2);
  const uint64_t seed = GetParam() * 4 + 2;
  const Drawn drawn = draw(seed);
  Problem coarse = drawn.problem;
  coarse.kept_in = Format::kBf16;
  const Solution rounded = solve(*drawn.model, coarse);
  exec::EngineOptions options;
  options.step.threads = 2;
  options.step.update = false;
  base::Stream random(seed, base::Purpose::kShuffle);
  const Format formats[] = {Format::kF32, Format::kBf16, Format::kF16};
  for (int layer = 0; layer < drawn.model->layers; ++layer)
    options.step.formats.push_back(
        {Format::kF32, formats[random.below(3)], formats[random.below(3)], Format::kF32});
  const auto engine = engine_for(drawn.model, drawn.problem, options);
  engine->train(0, {1}, pool);
  const auto got = gradients(*engine);
  for (size_t p = 0; p < got.size(); ++p)
    EXPECT_EQ(compare(drawn.model->parameters[p].name, drawn.exact.gradients[p],
                      rounded.gradients[p], 0x1p-8 * norm(drawn.exact.magnitudes[p]), got[p]),
              "")
        << "seed " << seed << "\n"
        << describe(*drawn.model);
  EXPECT_EQ(engine->measured_peak_bytes(), engine->forecast().engine_peak_bytes);
}

TEST_P(RandomNetwork, fused_steps_as_after) {
  base::ThreadPool pool(2);
  const uint64_t seed = GetParam() * 4 + 1;
  const auto model = random_network(seed);
  const Problem problem = draw_problem(*model, seed, 4, 2);
  std::vector<std::vector<float>> first;
  for (const exec::StepMode mode : {exec::StepMode::kAfter, exec::StepMode::kFused}) {
    exec::EngineOptions options;
    options.step.threads = 2;
    options.step.mode = mode;
    const auto engine = engine_for(model, problem, options);
    for (uint64_t step = 1; step <= 3; ++step) engine->train(0, {step}, pool);
    if (mode == exec::StepMode::kAfter)
      first = weights(*engine);
    else
      EXPECT_EQ(first, weights(*engine)) << describe(*model);
  }
}

INSTANTIATE_TEST_SUITE_P(seeds, RandomNetwork, testing::Range(uint64_t{0}, uint64_t{40}));
INSTANTIATE_TEST_SUITE_P(excited, RandomNetwork,
                         testing::Range(kExcitedSeeds / 4, kExcitedSeeds / 4 + 10));

}  // namespace
}  // namespace tri::contract
