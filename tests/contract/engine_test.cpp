// What the engine promises whatever is computed: the same bits however it is scheduled and stored,
// bytes as forecast, statistics per ghost batch, sentences for what it refuses.
#include "exec/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "contract/small_network.h"
#include "contract/trial.h"
#include "nn/catalog.h"
#include "tri/graph.h"

namespace tri::contract {
namespace {

using exec::EngineOptions;
using exec::StepMode;
using numeric::Format;
using optim::StateForm;
using optim::WeightForm;
using testing::AllOf;
using testing::HasSubstr;

class EveryRule : public testing::TestWithParam<optim::Rule> {};

TEST_P(EveryRule, steps_fused_as_after_in_every_form) {
  const auto model = small_network();
  for (const WeightForm weights : kWeightForms)
    for (const StateForm state : kStateForms)
      for (const Format gp : {Format::kF32, Format::kBf16, Format::kF16e6}) {
        EngineOptions options;
        options.step.samples = 4;
        options.step.threads = 2;
        options.step.rule = GetParam();
        options.forms = {weights, state, optim::moments(GetParam())};
        // One of the three also works and stores in 16 bits.
        const Format wide = gp == Format::kBf16 ? Format::kBf16 : Format::kF32;
        options.step.formats = table(*model, {wide, wide, wide, gp});
        const Trained after = train(model, options, 2, 2);
        options.step.mode = StepMode::kFused;
        EXPECT_EQ(after, train(model, options, 2, 2))
            << optim::name(weights) << " " << optim::name(state) << " " << numeric::spec(gp).name;
      }
}

INSTANTIATE_TEST_SUITE_P(rules, EveryRule, testing::ValuesIn(kRules),
                         [](const auto& test) { return std::string(optim::name(test.param)); });

TEST(Engine, gives_the_same_bits_for_any_number_of_threads_and_twice) {
  const auto model = small_network();
  for (const StepMode mode : {StepMode::kAfter, StepMode::kFused})
    for (const Format narrow : {Format::kF32, Format::kBf16, Format::kF8e5}) {
      EngineOptions options;
      options.step.samples = 6;
      options.step.ghost = 3;
      options.step.threads = 8;
      options.step.mode = mode;
      options.forms.weights = narrow == Format::kF32 ? WeightForm::kF32 : WeightForm::kBf16x8;
      options.step.formats = table(*model, {Format::kF32, narrow, narrow, Format::kF32});
      const Trained one = train(model, options, 1, 3);
      for (const size_t threads : {1, 2, 3, 8}) EXPECT_EQ(one, train(model, options, threads, 3));
    }
}

// As behind PyTorch's GradScaler, which takes no step where gradients overflowed.
TEST(Engine, corrects_adams_bias_without_lost_steps) {
  const auto model = small_network();
  const Problem problem = draw_problem(*model, 5, 4, 0);
  base::ThreadPool pool(1);
  const auto stepped = [&](uint64_t step, uint64_t lost) {
    EngineOptions options;
    options.step.rule = optim::Rule::kAdamW;
    options.forms.moments = 2;
    const auto engine = engine_for(model, problem, options);
    engine->train(0, {.step = step, .lost = lost}, pool);
    return weights(*engine);
  };
  EXPECT_EQ(stepped(1, 0), stepped(4, 3));
  EXPECT_NE(stepped(1, 0), stepped(4, 0));
}

// A layer that works in fp32 reads both parts of split weights: bf16+16 holds every bit of an fp32
// weight, so the step before the first update is that of fp32.
TEST(Engine, reads_the_remainder_of_split_weights_in_fp32) {
  const auto model = small_network();
  const Problem problem = draw_problem(*model, 5, 4, 0);
  base::ThreadPool pool(2);
  const auto loss = [&](WeightForm form, Format working) {
    EngineOptions options;
    options.step.threads = 2;
    options.forms.weights = form;
    options.step.formats = table(*model, {working});
    return engine_for(model, problem, options)->train(0, {1}, pool).loss.loss;
  };
  const double whole = loss(WeightForm::kF32, Format::kF32);
  EXPECT_EQ(loss(WeightForm::kBf16x16, Format::kF32), whole);
  const double upper = loss(WeightForm::kBf16x16, Format::kBf16);
  EXPECT_NE(upper, whole);
  // Eight more bits: 2^-8 of what the upper part alone is off, and some cancellation.
  EXPECT_LT(std::abs(loss(WeightForm::kBf16x8, Format::kF32) - whole),
            std::abs(upper - whole) / 16);
}

TEST(Engine, keeps_statistics_per_ghost_batch) {
  const auto model = small_network();
  const Problem both = draw_problem(*model, 9, 8, 4);
  EngineOptions options;
  options.step.threads = 2;
  options.step.update = false;
  base::ThreadPool pool(2);
  const auto whole = engine_for(model, both, options);
  whole->train(0, {1}, pool);
  Problem part = both;
  part.samples = 4;
  part.ghost = 0;
  const auto halves = engine_for(model, part, options);
  std::vector<float> seen;
  for (size_t half = 0; half < 2; ++half) {
    const exec::BatchRoom room = halves->batch(0);
    std::copy_n(both.x.begin() + static_cast<std::ptrdiff_t>(half * room.x.size()), room.x.size(),
                room.x.begin());
    std::copy_n(both.labels.begin() + static_cast<std::ptrdiff_t>(half * 4), 4,
                room.labels.begin());
    std::copy_n(both.ids.begin() + static_cast<std::ptrdiff_t>(half * 4), 4, room.samples.begin());
    halves->train(0, {1}, pool);
    const std::vector<float> some = logits(*halves, 4);
    seen.insert(seen.end(), some.begin(), some.end());
  }
  EXPECT_EQ(logits(*whole, 8), seen);
  for (size_t n = 0; n < model->nodes.size(); ++n) {
    if (model->nodes[n].kind != ops::OpKind::kBatchNorm) continue;
    const auto node = static_cast<int>(n);
    EXPECT_TRUE(std::ranges::equal(whole->parameters().running_mean(node),
                                   halves->parameters().running_mean(node)));
    EXPECT_TRUE(std::ranges::equal(whole->parameters().running_variance(node),
                                   halves->parameters().running_variance(node)));
  }
}

TEST(Engine, evaluates_any_part_of_a_batch_alike) {
  const auto model = small_network();
  const Problem problem = draw_problem(*model, 4, 7, 0);
  EngineOptions options;
  options.step.threads = 2;
  base::ThreadPool pool(2);
  const auto engine = engine_for(model, problem, options);
  engine->train(0, {1}, pool);
  const int64_t most = engine->forecast().eval_samples;
  engine->evaluate(0, most, pool);
  const std::vector<float> all = logits(*engine, most);
  for (int64_t count = 1; count <= most; ++count) {
    engine->evaluate(0, count, pool);
    const std::vector<float> some = logits(*engine, count);
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin()));
  }
  EXPECT_EQ(engine->measured_peak_bytes(), engine->forecast().engine_peak_bytes);
}

class CatalogModel : public testing::TestWithParam<std::string_view> {};

TEST_P(CatalogModel, peaks_where_the_forecast_says) {
  const bool scales = GetParam() != "mlp";
  nn::ModelOptions sizes;
  sizes.height = sizes.width = 32;
  sizes.width_multiplier = scales ? 0.25 : 0.1;
  Result<nn::Model> built = nn::build(GetParam(), sizes);
  ASSERT_TRUE(built.has_value()) << built.error().message;
  const auto model = std::make_shared<const nn::Model>(*std::move(built));
  base::ThreadPool pool(2);
  size_t variant = 0;
  for (const int64_t samples : {1, 4})
    for (const StepMode mode : {StepMode::kAfter, StepMode::kFused}) {
      EngineOptions options;
      options.step.threads = 2 + variant % 2;
      options.step.mode = mode;
      options.step.rule = kRules[variant % std::size(kRules)];
      options.store = variant % 3 == 2;
      options.forms = {kWeightForms[(variant + 1) % std::size(kWeightForms)],
                       kStateForms[variant % std::size(kStateForms)],
                       optim::moments(options.step.rule)};
      const Format narrow = variant % 2 == 0 ? Format::kF32 : Format::kF16;
      options.step.formats = table(*model, {narrow, narrow, narrow, Format::kF32});
      options.curvature.estimator =
          variant % 2 == 0 ? exec::Estimator::kFisher : exec::Estimator::kHessian;
      options.curvature.iterations = options.curvature.top = 1;
      const auto engine = engine_for(model, draw_problem(*model, 2, samples, 0), options);
      engine->train(0, {1}, pool);
      if (engine->forecast().curvature_samples > 0) engine->curvature(0, 1, pool);
      for (int64_t count = engine->forecast().eval_samples; count >= 1; count /= 2)
        engine->evaluate(0, count, pool);
      EXPECT_EQ(engine->measured_peak_bytes(), engine->forecast().engine_peak_bytes)
          << "batch " << samples << ", variant " << variant;
      for (const memory::Kind kind : memory::kKinds)
        EXPECT_EQ(engine->ledger().peak()[kind], engine->forecast().by_kind[kind])
            << memory::name(kind);
      ++variant;
    }
}

std::vector<std::string_view> model_names() {
  std::vector<std::string_view> names;
  for (const nn::CatalogEntry& entry : nn::catalog()) names.push_back(entry.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(names, CatalogModel, testing::ValuesIn(model_names()),
                         [](const auto& test) {
                           std::string name(test.param);
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

std::string refusal(int64_t samples, int64_t ghost) {
  EngineOptions options;
  options.step.samples = samples;
  options.step.ghost = ghost;
  const auto planned = exec::Engine::plan(small_network(), options);
  if (planned.has_value()) return "none";
  EXPECT_EQ(planned.error().code, ErrorCode::kInvalid);
  return planned.error().message;
}

TEST(Engine, refuses_batches_with_a_sentence) {
  EXPECT_THAT(refusal(0, 0), HasSubstr("0 samples"));
  EXPECT_THAT(refusal(-3, 0), HasSubstr("-3 samples"));
  EXPECT_THAT(refusal(int64_t{1} << 40, 0), HasSubstr("1099511627776 samples"));
  EXPECT_THAT(refusal(10, 4), AllOf(HasSubstr("10"), HasSubstr("ghost batch of 4")));
  EXPECT_THAT(refusal(10, -1), HasSubstr("-1"));
  EXPECT_THAT(refusal(4, 8), AllOf(HasSubstr("4"), HasSubstr("8")));
  EXPECT_EQ(refusal(8, 8), "none");
  EXPECT_EQ(refusal(8, 1), "none");
}

TEST(Graphs, refuse_what_cannot_be_flattened) {
  Graph graph("mine", {.height = 4, .width = 4, .channels = 2});
  Tensor x = graph.flatten(graph.conv(graph.input(), "conv1", {.out = 3}), "flat");
  x = graph.linear(graph.batch_norm(x, "norm1"), "fc", {.out = 2});
  const Result<Network> network = graph.finish(x);
  ASSERT_FALSE(network.has_value());
  EXPECT_THAT(network.error().message,
              AllOf(HasSubstr("norm1"), HasSubstr("1x1x48"), HasSubstr("4x4x3")));
}

// Behind a flatten a mask or an activation keeps the order of the numbers.
TEST(Graphs, may_drop_and_activate_between_flatten_and_linear) {
  Graph graph("mine", {.height = 4, .width = 3, .channels = 2});
  Tensor x = graph.conv(graph.input(), "conv1", {.out = 3});
  x = graph.dropout(graph.relu(graph.flatten(graph.batch_norm(x, "norm1"))), 0.5f);
  const auto model = finish(graph, graph.linear(x, "fc", {.out = 2}));
  EXPECT_TRUE(exec::Engine::plan(model, {}).has_value());
}

// Note [Gradients under a factor]: x that is its own factor, small maps, and such whose gradient
// stays under its factor.
TEST(Graphs, take_squeeze_excites_gradients_where_they_lie) {
  for (const int64_t side : {1, 5, 8}) {
    Graph graph("mine", {.height = side, .width = side, .channels = 3});
    Tensor x = graph.conv(graph.input(), "conv", {.out = 21, .bias = false});
    x = graph.silu(graph.batch_norm(x, "norm"));
    const Tensor mean = graph.global_avg_pool(x);
    const Tensor y = side == 1
                         ? graph.add(graph.scale(x, x), mean)
                         : graph.scale(x, graph.sigmoid(graph.conv(mean, "excite", {.out = 21})));
    const auto model = finish(graph, graph.linear(graph.flatten(y), "fc", {.out = 4}));
    const Problem problem = draw_problem(*model, 1, 18, 3);
    Problem plain = problem;
    plain.single = true;
    const Solution exact = solve(*model, problem), single = solve(*model, plain);
    base::ThreadPool pool(2);
    EngineOptions options;
    options.step.threads = 2;
    options.step.update = false;
    const auto engine = engine_for(model, problem, options);
    engine->train(0, {1}, pool);
    const auto under_factor = std::ranges::count_if(
        engine->step_plan().tensors, [](const auto& slots) { return slots.factored_sums >= 0; });
    EXPECT_EQ(under_factor, side == 8 ? 1 : 0);
    const auto got = gradients(*engine);
    for (size_t p = 0; p < got.size(); ++p)
      EXPECT_EQ(compare(model->parameters[p].name, exact.gradients[p], single.gradients[p],
                        16 * 0x1p-24 * norm(exact.magnitudes[p]), got[p]),
                "")
          << side;
  }
}

// Evaluation drops the dropout, so that the norm is the first to read the input.
TEST(Graphs, may_begin_with_a_mask_and_a_norm) {
  Graph graph("mine", {.height = 2, .width = 2, .channels = 3});
  const Tensor x = graph.batch_norm(graph.dropout(graph.input(), 0.5f), "norm1");
  const auto model = finish(graph, graph.linear(graph.flatten(x), "fc", {.out = 2}));
  const Problem problem = draw_problem(*model, 1, 4, 0);
  base::ThreadPool pool(1);
  EngineOptions options;
  options.step.update = false;
  const auto engine = engine_for(model, problem, options);
  engine->train(0, {1}, pool);
  const int64_t count = engine->forecast().eval_samples;
  engine->evaluate(0, count, pool);
  Problem evaluation = problem;
  evaluation.training = false;
  const Solution trained = solve(*model, problem), eval = solve(*model, evaluation, &trained);
  const std::vector<float> got = logits(*engine, count);
  // Sums of a dozen products of numbers around 1.
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(double{got[i]}, eval.logits[i], 1e-5);
}

}  // namespace
}  // namespace tri::contract
