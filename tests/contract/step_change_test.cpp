// What may change around a step and what must not: micro-batches, recomputation, clipping, loss
// scales, other plans between steps, lost steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "contract/random_graph.h"
#include "contract/small_network.h"
#include "exec/recompute.h"
#include "nn/catalog.h"

namespace tri::contract {
namespace {

using exec::Clip;
using exec::EngineOptions;
using exec::StepMode;
using exec::StepSpec;
using numeric::Format;
using optim::StateForm;
using optim::WeightForm;

EngineOptions small_options(StepMode mode) {
  EngineOptions options;
  options.step.samples = 8;
  options.step.ghost = 2;
  options.step.threads = 3;
  options.step.mode = mode;
  options.forms = {WeightForm::kBf16x8, StateForm::kInt8, 1};
  return options;
}

// Copies samples [first, first + samples of the room) of the problem.
void fill(exec::Engine& engine, const Problem& problem, size_t first) {
  const exec::BatchRoom room = engine.batch(0);
  const size_t each = room.x.size() / room.labels.size();
  const auto copy = [](const auto& from, size_t begin, auto to) {
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(begin), to.size(), to.begin());
  };
  copy(problem.x, first * each, room.x);
  copy(problem.labels, first, room.labels);
  copy(problem.ids, first, room.samples);
}

// Two steps of a batch of 8 that comes in micro-batches.
Trained train_in_parts(const std::shared_ptr<const nn::Model>& model, EngineOptions options,
                       int64_t micros) {
  base::ThreadPool pool(2);
  Problem problem = draw_problem(*model, 3, 8, 2);
  problem.samples = 8 / micros;
  options.step.micros = micros;
  const auto engine = engine_for(model, problem, options);
  set_rates(*engine);
  Trained trained;
  for (uint64_t step = 1; step <= 2; ++step) {
    double loss = 0;
    for (int64_t micro = 0; micro < micros; ++micro) {
      fill(*engine, problem, static_cast<size_t>(micro * problem.samples));
      loss = engine->train(0, {.step = step, .micro = micro}, pool).loss.loss;
    }
    trained.losses.push_back(loss);
  }
  trained.bytes = persistent(*engine);
  EXPECT_EQ(engine->measured_peak_bytes(), engine->forecast().engine_peak_bytes);
  return trained;
}

TEST(MicroBatches, summed_in_fp32_give_the_bits_of_the_whole_batch) {
  const auto model = small_network();
  for (const StepMode mode : {StepMode::kAfter, StepMode::kFused})
    for (const optim::Rule rule : kRules) {
      for (const Format narrow : {Format::kF32, Format::kBf16, Format::kF16e6}) {
        EngineOptions options = small_options(mode);
        options.step.accumulate = Format::kF32;
        options.step.rule = rule;
        options.forms.moments = optim::moments(rule);
        options.step.formats = table(*model, {narrow, narrow, narrow, narrow});
        const Trained whole = train_in_parts(model, options, 1);
        for (const int64_t micros : {2, 4})
          EXPECT_EQ(whole.bytes, train_in_parts(model, options, micros).bytes)
              << optim::name(rule) << " " << numeric::spec(narrow).name << " " << micros;
      }
    }
}

// Note [Gradients under a factor], of a depthwise and of a dense convolution, and of a sum.
TEST(MicroBatches, give_the_bits_of_the_whole_batch_under_factors_too) {
  Graph graph("excited", {.height = 9, .width = 8, .channels = 3});
  const auto excited = [&graph](Tensor x, const std::string& name) {
    x = graph.silu(graph.batch_norm(x, name + ".norm"));
    const Tensor factor = graph.conv(graph.global_avg_pool(x), name + ".excite", {.out = 20});
    return graph.scale(x, graph.sigmoid(factor));
  };
  const Tensor stem = graph.conv(graph.input(), "stem", {.out = 20, .kernel = 3, .padding = 1});
  Tensor x = excited(stem, "dense");
  x = graph.conv(x, "depthwise", {.out = 20, .kernel = 3, .padding = 1, .groups = 20});
  x = excited(graph.add(excited(x, "each"), stem), "sum");
  const auto model =
      finish(graph, graph.linear(graph.flatten(graph.global_avg_pool(x)), "head", {.out = 7}));
  for (const Format narrow : {Format::kF32, Format::kBf16, Format::kF8e5}) {
    EngineOptions options = small_options(StepMode::kFused);
    options.step.accumulate = Format::kF32;
    options.step.formats = table(*model, {narrow, narrow, narrow, narrow});
    const auto planned = exec::Engine::plan(model, options);
    ASSERT_TRUE(planned.has_value()) << planned.error().message;
    EXPECT_EQ(std::ranges::count_if((*planned)->step_plan().tensors,
                                    [](const auto& slots) { return slots.factored_sums >= 0; }),
              3);
    const Trained whole = train_in_parts(model, options, 1);
    for (const int64_t micros : {2, 4})
      EXPECT_EQ(whole.bytes, train_in_parts(model, options, micros).bytes)
          << numeric::spec(narrow).name << " " << micros;
  }
}

// The gradient of the first `samples` of a batch of 8, as its sums stand after them.
std::vector<std::vector<float>> sums_after(const std::shared_ptr<const nn::Model>& model,
                                           EngineOptions options, int64_t samples,
                                           base::ThreadPool& pool) {
  Problem problem = draw_problem(*model, 3, 8, 2);
  problem.samples = samples;
  options.step.mode = StepMode::kAfter;
  options.step.update = false;
  const auto engine = engine_for(model, problem, options);
  engine->train(0, {1}, pool);
  std::vector<std::vector<float>> sums = gradients(*engine);
  for (std::vector<float>& of_parameter : sums)
    for (float& sum : of_parameter) sum *= static_cast<float>(samples) / 8;
  return sums;
}

// Each time it waits for the next micro-batch a sum moves by less than a unit in its last place,
// 2^-7 of itself.
TEST(MicroBatches, summed_in_bf16_stay_near_the_whole_batch) {
  const auto model = small_network();
  EngineOptions options = small_options(StepMode::kFused);
  options.forms = {WeightForm::kF32, StateForm::kF32, 1};
  base::ThreadPool pool(2);
  Problem problem = draw_problem(*model, 3, 8, 2);
  const auto exact = engine_for(model, problem, options);
  problem.samples = 2;
  options.step.micros = 4;
  const auto rounded = engine_for(model, problem, options);
  for (exec::Engine* engine : {exact.get(), rounded.get()})
    for (optim::Hyper& hyper : engine->hypers()) hyper.lr = 1;
  exact->train(0, {1}, pool);
  for (int64_t micro = 0; micro < 4; ++micro) {
    fill(*rounded, problem, static_cast<size_t>(micro) * 2);
    rounded->train(0, {.step = 1, .micro = micro}, pool);
  }
  options.step.micros = 1;
  const auto want = weights(*exact), got = weights(*rounded);
  const auto first = sums_after(model, options, 2, pool);
  const auto second = sums_after(model, options, 4, pool);
  const auto third = sums_after(model, options, 6, pool);
  bool differs = false;
  for (size_t p = 0; p < want.size(); ++p)
    for (size_t i = 0; i < want[p].size(); ++i) {
      const double waited = std::abs(double{first[p][i]}) + std::abs(double{second[p][i]}) +
                            std::abs(double{third[p][i]});
      // Later sums have moved a little too; weights around 1 are stored to 2^-24.
      EXPECT_NEAR(double{want[p][i]}, double{got[p][i]}, 1.05 * 0x1p-7 * waited + 0x1p-22);
      differs = differs || want[p][i] != got[p][i];
    }
  EXPECT_TRUE(differs);
}

// train_in_parts() checks that every table peaks where its forecast says.
TEST(Kernels, follow_their_table_in_whole_and_micro_batches) {
  const auto built = nn::build(
      "convnet", {.height = 8, .width = 8, .channels = 3, .classes = 3, .width_multiplier = 0.5});
  ASSERT_TRUE(built.has_value()) << built.error().message;
  const auto model = std::make_shared<const nn::Model>(*built);
  EngineOptions options = small_options(StepMode::kFused);
  options.step.accumulate = Format::kF32;
  const Trained rule = train_in_parts(model, options, 1);

  std::vector<ops::Kernels> apart, others;
  const auto planned = exec::Engine::plan(model, options);
  ASSERT_TRUE(planned.has_value()) << planned.error().message;
  for (const exec::LayerForecast& layer : (*planned)->forecast().layers) {
    const bool joined = layer.kernels.backward == ops::Kernel::kJoined;
    apart.push_back(
        {layer.kernels.forward, joined ? layer.others.backward : layer.kernels.backward});
    others.push_back(layer.others);
  }
  ASSERT_NE(apart, others);
  options.step.kernels = apart;
  EXPECT_EQ(train_in_parts(model, options, 1).bytes, rule.bytes);
  options.step.kernels = others;
  const Trained other = train_in_parts(model, options, 1);
  EXPECT_NE(other.bytes, rule.bytes);  // Winograd rounds elsewhere
  EXPECT_NEAR(other.losses[0], rule.losses[0], 1e-3 * rule.losses[0]);
  for (const int64_t micros : {2, 4})
    EXPECT_EQ(train_in_parts(model, options, micros).bytes, other.bytes) << micros;
}

TEST(Recompute, changes_no_bit_and_lowers_the_peak) {
  for (const std::string_view name : {"resnet18-cifar", "efficientnet-b0", "shufflenet-v2"}) {
    nn::ModelOptions sizes;
    sizes.height = sizes.width = 32;
    sizes.width_multiplier = 0.25;
    Result<nn::Model> built = nn::build(name, sizes);
    ASSERT_TRUE(built.has_value()) << built.error().message;
    const auto model = std::make_shared<const nn::Model>(*std::move(built));
    EngineOptions options = small_options(StepMode::kFused);
    const Trained kept = train(model, options, 2, 2);
    auto planned = exec::Engine::plan(model, options);
    ASSERT_TRUE(planned.has_value());
    const size_t before = (*planned)->forecast().engine_peak_bytes;
    options.step = with_all_recomputed(**planned, options.step);
    EXPECT_FALSE(options.step.recompute.empty());
    EXPECT_EQ(kept, train(model, options, 2, 2)) << name;
    auto cheap = exec::Engine::plan(model, options);
    ASSERT_TRUE(cheap.has_value());
    const size_t least = (*cheap)->forecast().engine_peak_bytes;
    EXPECT_LT(least, before) << name;
    const auto some = with_recompute_within(**planned, (*planned)->spec(), (least + before) / 2);
    EXPECT_FALSE(some.recompute.empty()) << name;
    EXPECT_LT(some.recompute.size(), options.step.recompute.size()) << name;
    options.step = some;
    EXPECT_EQ(kept, train(model, options, 2, 2)) << name;
  }
}

// Sums whose sums are added again, under every kind of reader, and a concatenation of them.
std::shared_ptr<const nn::Model> branching_network() {
  Graph graph("branching", {.height = 8, .width = 6, .channels = 3});
  const auto layer = [&](Tensor x, const std::string& name) {
    x = graph.conv(x, name, {.out = 16, .kernel = 3, .padding = 1, .bias = false});
    return graph.batch_norm(x, name + "_norm");
  };
  Tensor x = graph.relu(layer(graph.input(), "stem"));
  Tensor y = graph.relu(graph.add(layer(x, "a"), x));
  Tensor z = graph.add(layer(y, "b"), y);  // read without an activation
  z = graph.add(z, y);                     // a sum of sums
  Tensor wide = graph.concat({graph.silu(graph.batch_norm(z, "inner")), y});
  wide = graph.max_pool(wide, {.kernel = 2, .stride = 2});
  wide = graph.relu(graph.add(layer(wide, "c"), layer(wide, "d")));
  Tensor gate = graph.sigmoid(graph.conv(graph.global_avg_pool(wide), "gate", {.out = 16}));
  wide = graph.stochastic_depth(graph.scale(wide, gate), 0.3f);
  return finish(graph,
                graph.linear(graph.flatten(graph.global_avg_pool(wide)), "head", {.out = 5}));
}

struct LightRuns {
  LightRuns(std::shared_ptr<const nn::Model> of, Format y)
      : model(std::move(of)), options(small_options(StepMode::kFused)) {
    options.step.formats = table(*model, {Format::kF32, y, y, Format::kF32});
    kept = train(model, options, 2, 2);
    before = planned()->forecast().engine_peak_bytes;
    options.step.drop_light = true;
  }
  std::unique_ptr<exec::Engine> planned() const {
    auto engine = exec::Engine::plan(model, options);
    EXPECT_TRUE(engine.has_value());
    return *std::move(engine);
  }
  void expect_the_same(const std::vector<exec::Segment>& recomputed) {
    options.step.recompute = recomputed;
    EXPECT_EQ(kept, train(model, options, 2, 2)) << model->name << ", " << recomputed.size();
  }

  std::shared_ptr<const nn::Model> model;
  EngineOptions options;
  Trained kept;
  size_t before;  // the peak
};

TEST(LightTensors, are_made_again_and_change_no_bit) {
  for (const auto& model : {branching_network(), small_network()}) {
    for (const Format y : {Format::kF32, Format::kBf16, Format::kF8e4b4}) {
      LightRuns runs(model, y);
      runs.expect_the_same({});
      EXPECT_LE(runs.planned()->forecast().engine_peak_bytes, runs.before);
      for (const auto& segments : exec::ways_to_recompute(runs.planned()->lowered()))
        for (const auto& some :
             {segments, {segments.front()}, {segments.back()}, {segments[segments.size() / 2]}})
          runs.expect_the_same(some);
    }
    EngineOptions twice = small_options(StepMode::kFused);  // steps run forward and back twice
    twice.step.clip = Clip::kExact;
    twice.step.clip_norm = 0.5f;
    const Trained clipped = train(model, twice, 2, 2);
    twice.step.drop_light = true;
    EXPECT_EQ(clipped, train(model, twice, 2, 2)) << model->name;
  }
}

TEST(LightTensors, of_random_networks_change_no_bit) {
  for (uint64_t draw = 0; draw < 60; ++draw) {
    const uint64_t seed = draw < 50 ? draw : kExcitedSeeds + draw;
    LightRuns runs(random_network(seed), seed % 2 == 0 ? Format::kBf16 : Format::kF32);
    runs.expect_the_same({});
    for (const auto& segments : exec::ways_to_recompute(runs.planned()->lowered()))
      runs.expect_the_same({segments[seed % segments.size()]});
  }
}

TEST(LightTensors, lower_the_peak_of_residual_networks) {
  for (const std::string_view name : {"resnet18-cifar", "squeezenet-cifar"}) {
    Result<nn::Model> built =
        nn::build(name, {.height = 32, .width = 32, .width_multiplier = 0.25});
    if (!built) built = nn::build(name, {.height = 32, .width = 32});  // it has no width
    ASSERT_TRUE(built.has_value()) << built.error().message;
    LightRuns runs(std::make_shared<const nn::Model>(*std::move(built)), Format::kBf16);
    EXPECT_LT(runs.planned()->forecast().engine_peak_bytes, runs.before) << name;
    runs.expect_the_same({});
    const auto segments = exec::segments(runs.planned()->lowered(), 2);
    runs.expect_the_same({segments.back()});
  }
}

TEST(Clip, by_the_exact_norm_is_the_same_fused_and_after) {
  const auto model = small_network();
  const auto step = [&](StepMode mode, Clip clip, float norm, int64_t micros) {
    EngineOptions options = small_options(mode);
    options.forms = {WeightForm::kF32, StateForm::kF32, 1};
    options.step.accumulate = Format::kF32;
    options.step.clip = clip;
    options.step.clip_norm = norm;
    return train_in_parts(model, options, micros);
  };
  for (const Clip clip : {Clip::kExact, Clip::kLayer}) {
    const Trained after = step(StepMode::kAfter, clip, 0.05f, 1);
    EXPECT_EQ(after, step(StepMode::kFused, clip, 0.05f, 1));
    EXPECT_EQ(after.bytes, step(StepMode::kFused, clip, 0.05f, 2).bytes);
    EXPECT_NE(after.bytes, step(StepMode::kAfter, Clip::kNone, 0, 1).bytes);
    // A limit that nothing reaches changes nothing.
    EXPECT_EQ(step(StepMode::kFused, clip, 1e6f, 1), step(StepMode::kFused, Clip::kNone, 0, 1));
  }
}

TEST(Clip, counts_what_storing_lost_once_although_it_runs_twice) {
  const auto model = small_network();
  base::ThreadPool pool(2);
  const auto report = [&](StepMode mode) {
    EngineOptions options = small_options(mode);
    options.step.clip = Clip::kExact;
    options.step.clip_norm = 0.05f;
    options.step.formats =
        table(*model, {Format::kF32, Format::kF8e4b4, Format::kF8e5, Format::kF32});
    return engine_for(model, draw_problem(*model, 3, 8, 2), options)->train(0, {1}, pool);
  };
  const exec::StepReport after = report(StepMode::kAfter), fused = report(StepMode::kFused);
  const auto underflows = [](const std::vector<ops::StoreCounts>& all) {
    std::vector<uint64_t> counts;
    for (const ops::StoreCounts& one : all) counts.push_back(one.underflow);
    return counts;
  };
  EXPECT_EQ(underflows(fused.saved), underflows(after.saved));
  EXPECT_EQ(underflows(fused.passed), underflows(after.passed));
  EXPECT_GT(std::ranges::max(underflows(after.saved)), 0u);
  EXPECT_GT(std::ranges::max(underflows(after.passed)), 0u);
}

// Without momentum and decay a step is the rate times the clipped gradient.
TEST(Clip, limits_the_norm_of_the_step) {
  const auto model = small_network();
  base::ThreadPool pool(2);
  for (const Clip clip : {Clip::kExact, Clip::kLayer}) {
    EngineOptions options = small_options(StepMode::kFused);
    options.forms = {WeightForm::kF32, StateForm::kF32, 1};
    options.step.clip = clip;
    options.step.clip_norm = 0.05f;
    const Problem problem = draw_problem(*model, 3, 8, 2);
    const auto engine = engine_for(model, problem, options);
    for (optim::Hyper& hyper : engine->hypers()) hyper.lr = 1.0;
    const auto before = weights(*engine);
    engine->train(0, {1}, pool);
    const auto after = weights(*engine);
    double all = 0, count = 0;
    for (const auto& values : before) count += static_cast<double>(values.size());
    // Weights below 2 are stored to 2^-24 each; PyTorch's formula takes off a part of 1e-6 / 0.05
    // at the most; the factor and the products round.
    const double allowed = std::sqrt(count) * 0x1p-23 + 1e-6 + 0.05 * 0x1p-21;
    for (size_t p = 0; p < before.size(); ++p) {
      double mine = 0;
      for (size_t i = 0; i < before[p].size(); ++i) {
        const double moved = double{before[p][i]} - double{after[p][i]};
        mine += moved * moved;
      }
      all += mine;
      if (clip == Clip::kLayer) {
        EXPECT_LE(std::sqrt(mine), 0.05 + allowed);
      }
    }
    if (clip == Clip::kExact) {
      EXPECT_NEAR(std::sqrt(all), 0.05, allowed);
    }
  }
}

TEST(LossScale, leaves_no_trace_in_fp32) {
  const auto model = small_network();
  base::ThreadPool pool(2);
  for (const StepMode mode : {StepMode::kAfter, StepMode::kFused}) {
    std::vector<Trained> seen;
    std::vector<optim::GradStats> stats;
    for (const float scale : {1.0f, 1024.0f}) {
      const EngineOptions options = small_options(mode);
      const auto engine = engine_for(model, draw_problem(*model, 3, 8, 2), options);
      set_rates(*engine);
      Trained trained;
      for (uint64_t step = 1; step <= 3; ++step) {
        const auto& report = engine->train(0, {.step = step, .loss_scale = scale}, pool);
        trained.losses.push_back(report.loss.loss);
        stats.push_back(report.gradients[0]);
      }
      trained.bytes = persistent(*engine);
      seen.push_back(std::move(trained));
    }
    EXPECT_EQ(seen[0], seen[1]);
    EXPECT_EQ(stats[0].sum_squares, stats[3].sum_squares);
  }
}

TEST(LostSteps, that_overflow_change_no_weight_and_name_the_layer) {
  const auto model = small_network();
  base::ThreadPool pool(2);
  for (const Format gy : {Format::kF16, Format::kF8e5})
    for (const StepMode mode : {StepMode::kAfter, StepMode::kFused}) {
      EngineOptions options = small_options(mode);
      options.step.formats = table(*model, {Format::kF32, Format::kF32, gy, Format::kF32});
      const auto engine = engine_for(model, draw_problem(*model, 3, 8, 2), options);
      set_rates(*engine);
      // Stepping without the scale first shows that nothing else is in the way.
      EXPECT_FALSE(engine->train(0, {1}, pool).skipped);
      const auto before = weights(*engine);
      const auto& report = engine->train(0, {.step = 2, .loss_scale = 0x1p30f}, pool);
      EXPECT_TRUE(report.skipped);
      // The loss's own gradient is the first to overflow.
      EXPECT_EQ(report.first_bad, model->layers - 1);
      EXPECT_EQ(before, weights(*engine));
    }
}

TEST(LostSteps, with_a_loss_that_is_no_number_change_no_weight) {
  const auto model = small_network();
  base::ThreadPool pool(2);
  for (const StepMode mode : {StepMode::kAfter, StepMode::kFused}) {
    const auto engine = engine_for(model, draw_problem(*model, 3, 8, 2), small_options(mode));
    set_rates(*engine);
    const auto before = weights(*engine);
    engine->batch(0).x[5] = std::numeric_limits<float>::infinity();
    const auto& report = engine->train(0, {1}, pool);
    EXPECT_TRUE(report.skipped);
    EXPECT_EQ(report.first_bad, -1);
    EXPECT_EQ(before, weights(*engine));
    // What an evaluation normalises with has outlived it too.
    engine->batch(0).x[5] = 0;
    EXPECT_TRUE(std::isfinite(engine->evaluate(0, 8, pool).loss.loss));
  }
}

// Every layer in turn keeps the gradient of its weights in a format that ends at 30.
struct NarrowLayer {
  std::shared_ptr<const nn::Model> model = small_network();
  base::ThreadPool pool{2};

  EngineOptions options(StepMode mode, exec::Skip skip, int layer) const {
    EngineOptions made = small_options(mode);
    made.step.skip = skip;
    made.step.formats = table(*model, {});
    if (layer >= 0) made.step.formats[static_cast<size_t>(layer)].gp = Format::kF8e4b4;
    return made;
  }
  std::unique_ptr<exec::Engine> engine(const EngineOptions& options) const {
    auto made = engine_for(model, draw_problem(*model, 3, 8, 2), options);
    set_rates(*made);
    return made;
  }
  // The loss scale that brings a layer's largest gradient into (most / 2, most].
  float loss_scale(int layer, float most) {
    const auto probe = engine(options(StepMode::kFused, exec::Skip::kLayer, -1));
    const exec::StepReport& report = probe->train(0, {1}, pool);
    for (const nn::Node& node : model->nodes)
      if (node.layer == layer && node.weight >= 0 && node.kind != ops::OpKind::kBatchNorm)
        return std::exp2(std::floor(
            std::log2(most / report.gradients[static_cast<size_t>(node.weight)].max_abs)));
    return 0;
  }
  int layer_of(size_t parameter) const {
    for (const nn::Node& node : model->nodes)
      if (node.weight == static_cast<int>(parameter) || node.bias == static_cast<int>(parameter))
        return node.layer;
    return -1;
  }
};

TEST(LostUpdates, cost_a_layer_whole_and_with_a_loss_scale_the_rest) {
  NarrowLayer narrow;
  for (int layer = 0; layer < narrow.model->layers; ++layer) {
    const float scale = narrow.loss_scale(layer, 120);
    for (const StepMode mode : {StepMode::kAfter, StepMode::kFused})
      for (const exec::Skip skip : {exec::Skip::kLayer, exec::Skip::kRest}) {
        const auto plain = narrow.engine(narrow.options(mode, skip, -1));
        EXPECT_FALSE(plain->train(0, {.step = 1, .loss_scale = scale}, narrow.pool).skipped);
        const auto engine = narrow.engine(narrow.options(mode, skip, layer));
        const auto before = weights(*engine), good = weights(*plain);
        const auto& report = engine->train(0, {.step = 1, .loss_scale = scale}, narrow.pool);
        EXPECT_TRUE(report.skipped);
        EXPECT_EQ(report.first_bad, layer);
        const auto after = weights(*engine);
        for (size_t p = 0; p < after.size(); ++p) {
          const int mine = narrow.layer_of(p);
          const bool steps = mine != layer && (skip == exec::Skip::kLayer ||
                                               (mode == StepMode::kFused && mine > layer));
          EXPECT_EQ(after[p], steps ? good[p] : before[p])
              << narrow.model->parameters[p].name << ", layer " << layer;
        }
      }
  }
}

// Where no bound says so beforehand, a gradient is looked at before it is spent.
TEST(LostUpdates, are_none_just_below_the_limit) {
  NarrowLayer narrow;
  for (int layer = 0; layer < narrow.model->layers; ++layer) {
    const float scale = narrow.loss_scale(layer, 30);
    std::vector<std::vector<Bytes>> seen;
    for (const StepMode mode : {StepMode::kAfter, StepMode::kFused}) {
      const auto engine = narrow.engine(narrow.options(mode, exec::Skip::kRest, layer));
      EXPECT_FALSE(engine->train(0, {.step = 1, .loss_scale = scale}, narrow.pool).skipped);
      seen.push_back(persistent(*engine));
    }
    EXPECT_EQ(seen[0], seen[1]) << layer;
  }
}

// Small gradients vanish in fp16; a power of two per layer brings them back and is taken off again.
TEST(Scales, keep_small_gradients_in_fp16) {
  const auto model = small_network();
  base::ThreadPool pool(2);
  const auto first_step = [&](Format gy, float scale, float loss_scale) {
    EngineOptions options = small_options(StepMode::kFused);
    options.step.formats = table(*model, {Format::kF32, Format::kF32, gy, Format::kF32});
    const auto engine = engine_for(model, draw_problem(*model, 3, 8, 2), options);
    for (exec::LayerScales& each : engine->scales()) each.gy = scale;
    return engine->train(0, {.step = 1, .loss_scale = loss_scale}, pool);
  };
  const auto lost = [](const exec::StepReport& report) {
    uint64_t all = 0;
    for (const ops::StoreCounts& counts : report.passed) all += counts.underflow;
    return all;
  };
  // A tiny loss scale makes all gradients tiny.
  const auto plain = first_step(Format::kF16, 1, 0x1p-20f);
  const auto scaled = first_step(Format::kF16, 0x1p20f, 0x1p-20f);
  const auto reference = first_step(Format::kF16, 1, 1);
  EXPECT_GT(lost(plain), 0u);
  EXPECT_EQ(lost(scaled), lost(reference));
  for (size_t p = 0; p < reference.gradients.size(); ++p)
    EXPECT_EQ(scaled.gradients[p].sum_squares, reference.gradients[p].sum_squares) << p;
  for (size_t t = 0; t < reference.passed.size(); ++t)
    EXPECT_EQ(scaled.passed[t].max_abs * 0x1p20f, reference.passed[t].max_abs) << t;
}

// The scale of a tensor follows its own largest gradient, not that of its neighbour.
TEST(Scales, every_input_of_an_operation_has_counts_of_its_own) {
  base::ThreadPool pool(2);
  for (const char* name : {"squeezenet-cifar", "efficientnet-b0"}) {
    Result<nn::Model> built = nn::build(name, {.classes = 4, .width_multiplier = 0.25});
    ASSERT_TRUE(built);
    const auto model = std::make_shared<const nn::Model>(std::move(*built));
    EngineOptions options = small_options(StepMode::kFused);
    options.step.formats = table(*model, {Format::kF32, Format::kF32, Format::kF16, Format::kF32});
    const auto engine = engine_for(model, draw_problem(*model, 4, 8, 2), options);
    const exec::StepReport& report = engine->train(0, {1}, pool);
    size_t seen = 0;
    for (const exec::LoweredOp& op : engine->lowered().ops) {
      if (op.kind != ops::OpKind::kConcat && op.kind != ops::OpKind::kChannelScale) continue;
      for (const int input : op.inputs) {
        // What lies under a factor for good is stored once, as the gradient of the product.
        const bool lies =
            engine->step_plan().tensors[static_cast<size_t>(input)].factored_sums >= 0;
        const auto t = static_cast<size_t>(lies ? op.output : input);
        EXPECT_GT(report.passed[t].max_abs, 0) << name << " " << op.name;
        ++seen;
      }
    }
    EXPECT_GT(seen, 4u) << name;
  }
}

TEST(Replan, moves_no_weight_and_costs_no_step) {
  const auto model = small_network();
  base::ThreadPool pool(3);
  const Problem problem = draw_problem(*model, 3, 8, 2);
  EngineOptions options = small_options(StepMode::kFused);
  options.most_bytes = size_t{64} << 20;
  const auto engine = engine_for(model, problem, options);
  set_rates(*engine);
  const StepSpec first = engine->spec();
  StepSpec other = first;
  other.samples = 4;
  other.formats = table(*model, {Format::kBf16, Format::kF16, Format::kF16, Format::kF32});
  const auto before = persistent(*engine);
  for (const StepSpec& spec : {other, first, other, first}) {
    ASSERT_TRUE(engine->replan(spec).has_value());
    EXPECT_EQ(engine->spec(), spec);
    EXPECT_EQ(before, persistent(*engine));
  }
  // And a step after it is the step of an engine that was never planned anew.
  for (size_t s = 0; s < problem.labels.size(); s += 8) fill(*engine, problem, s);
  engine->train(0, {1}, pool);
  EXPECT_EQ(persistent(*engine), train(model, options, 3, 1).bytes);
}

TEST(Replan, takes_and_gives_back_what_its_price_says) {
  const auto model = small_network();
  base::ThreadPool pool(3);
  EngineOptions options = small_options(StepMode::kAfter);
  options.most_bytes = size_t{64} << 20;
  const auto engine = engine_for(model, draw_problem(*model, 3, 8, 2), options);
  StepSpec larger = engine->spec();
  larger.samples = 32;
  const Result<exec::Forecast> price = engine->price(larger);
  ASSERT_TRUE(price.has_value());
  EXPECT_GT(price->engine_peak_bytes, engine->forecast().engine_peak_bytes);
  ASSERT_TRUE(engine->replan(larger).has_value());
  EXPECT_EQ(engine->forecast().engine_peak_bytes, price->engine_peak_bytes);
  std::ranges::fill(engine->batch(0).x, 0.5f);
  engine->train(0, {1}, pool);
  EXPECT_EQ(engine->measured_peak_bytes(), price->engine_peak_bytes);
  StepSpec bad = larger;
  bad.samples = 31;
  EXPECT_FALSE(engine->replan(bad).has_value());
  EXPECT_EQ(engine->spec(), larger);
  bad.samples = 2'000'000;
  const Result<void> refused = engine->replan(bad);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kDoesNotFit);
  EXPECT_EQ(engine->spec(), larger);
  engine->train(0, {2}, pool);
}

}  // namespace
}  // namespace tri::contract
