// Curvature of tiny networks against matrices formed whole, in double precision, from the
// interpreter's gradients.
#include <gtest/gtest.h>

#include <Eigen/Eigenvalues>
#include <cmath>

#include "base/philox.h"
#include "contract/random_graph.h"
#include "contract/trial.h"
#include "nn/catalog.h"
#include "tri/graph.h"

namespace tri::contract {
namespace {

using exec::CurvatureReport;
using exec::EngineOptions;
using exec::Estimator;
using numeric::Format;
using Spectrum = std::vector<double>;

constexpr int64_t kSamples = 7;
constexpr size_t kTop = 5;
constexpr uint64_t kStep = 11;

std::shared_ptr<const nn::Model> finish(const Graph& graph, Tensor logits) {
  Result<Network> network = graph.finish(logits);
  EXPECT_TRUE(network.has_value()) << network.error().message;
  return std::make_shared<const nn::Model>(nn::model_of(*network));
}

// 243 parameters.
std::shared_ptr<const nn::Model> mlp() {
  Graph graph("mlp", {.height = 3, .width = 2, .channels = 2});
  Tensor x = graph.silu(graph.linear(graph.flatten(graph.input()), "fc1", {.out = 9}));
  x = graph.relu(graph.linear(x, "fc2", {.out = 7}));
  return finish(graph, graph.linear(graph.dropout(x, 0.3f), "fc3", {.out = 6}));
}

// 403 parameters: every kind of weight, few positions and many, bias, norms behind a convolution
// and behind a sum, a skipped layer.
std::shared_ptr<const nn::Model> convnet() {
  Graph graph("convnet", {.height = 5, .width = 4, .channels = 2});
  Tensor x = graph.conv(graph.input(), "stem", {.out = 6, .kernel = 3, .padding = 1});
  x = graph.silu(graph.batch_norm(x, "norm1"));
  Tensor y = graph.conv(x, "depthwise", {.out = 6, .kernel = 3, .padding = 1, .groups = 6});
  y = graph.relu(graph.batch_norm(y, "norm2"));
  x = graph.batch_norm(graph.add(x, y), "norm3");
  x = graph.max_pool(x, {.kernel = 2, .stride = 1});
  x = graph.conv(x, "grouped", {.out = 4, .kernel = 3, .stride = 2, .groups = 2, .bias = false});
  x = graph.silu(graph.batch_norm(x, "norm4"));
  x = graph.flatten(graph.global_avg_pool(x));
  return finish(graph, graph.linear(x, "head", {.out = 5}));
}

// Running statistics as if the network had trained for a while.
Solution draw_statistics(const nn::Model& model) {
  base::Stream random(77, base::Purpose::kInit, 2);
  Solution before;
  before.running_mean.resize(model.nodes.size());
  before.running_variance.resize(model.nodes.size());
  for (size_t n = 0; n < model.nodes.size(); ++n) {
    if (model.nodes[n].kind != ops::OpKind::kBatchNorm) continue;
    for (int64_t c = 0; c < model.nodes[n].shape.c; ++c) {
      before.running_mean[n].push_back(double{0.4f * random.uniform() - 0.2f});
      before.running_variance[n].push_back(double{0.5f + random.uniform()});
    }
  }
  return before;
}

struct Case {
  explicit Case(std::shared_ptr<const nn::Model> net, uint64_t seed = 4)
      : model(std::move(net)),
        problem(draw_problem(*model, seed, kSamples, 0)),
        before(draw_statistics(*model)) {
    problem.frozen = true;
  }

  std::unique_ptr<exec::Engine> engine(EngineOptions options) const {
    options.step.label_smoothing = static_cast<float>(problem.smoothing);
    auto made = engine_for(model, problem, options);
    for (size_t n = 0; n < model->nodes.size(); ++n) {
      if (before.running_mean[n].empty()) continue;
      const auto node = static_cast<int>(n);
      std::ranges::copy(before.running_mean[n], made->parameters().running_mean(node).begin());
      std::ranges::copy(before.running_variance[n],
                        made->parameters().running_variance(node).begin());
    }
    return made;
  }

  // The gradient of the layer's parameters, one after the other.
  Numbers layer_gradient(const Solution& solution, int layer) const {
    Numbers all;
    for (const nn::Node& node : model->nodes) {
      if (std::max(0, node.layer) != layer) continue;
      for (const int p : {node.weight, node.bias})
        if (p >= 0)
          all.insert(all.end(), solution.gradients[static_cast<size_t>(p)].begin(),
                     solution.gradients[static_cast<size_t>(p)].end());
    }
    return all;
  }

  // Each sample by itself, under `labels`.
  std::vector<Solution> per_sample(const std::vector<int32_t>& labels, bool single) const {
    std::vector<Solution> all;
    const auto elements = static_cast<std::ptrdiff_t>(model->input_shape().elements());
    for (std::ptrdiff_t n = 0; n < kSamples; ++n) {
      Problem one = problem;
      one.samples = 1;
      one.smoothing = 0;
      one.single = single;
      one.x.assign(problem.x.begin() + n * elements, problem.x.begin() + (n + 1) * elements);
      one.labels = {labels[static_cast<size_t>(n)]};
      all.push_back(solve(*model, one, &before));
    }
    return all;
  }

  std::shared_ptr<const nn::Model> model;
  Problem problem;
  Solution before;
};

EngineOptions fisher_options() {
  EngineOptions options;
  options.step.threads = 3;
  options.curvature.estimator = Estimator::kFisher;
  options.curvature.samples = kSamples;
  options.curvature.top = kTop;
  return options;
}

// Descending.
Spectrum spectrum(const Eigen::MatrixXd& matrix) {
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(matrix, Eigen::EigenvaluesOnly);
  const Eigen::VectorXd values = solver.eigenvalues().reverse();
  return {values.begin(), values.end()};
}

std::vector<int32_t> drawn_labels(const Case& c) {
  Problem problem = c.problem;
  problem.smoothing = 0;
  const Numbers logits = solve(*c.model, problem, &c.before).logits;
  const auto classes = static_cast<size_t>(c.model->classes());
  std::vector<int32_t> labels;
  for (size_t n = 0; n < static_cast<size_t>(kSamples); ++n) {
    const double* row = logits.data() + n * classes;
    double sum = 0;
    for (size_t k = 0; k < classes; ++k) sum += std::exp(row[k]);
    base::Stream random(problem.seed, base::Purpose::kLabelSampling, kStep, problem.ids[n]);
    const double draw = sum * double{random.uniform()};
    size_t k = 0;
    for (double passed = std::exp(row[0]); passed <= draw; passed += std::exp(row[k])) ++k;
    labels.push_back(static_cast<int32_t>(k));
  }
  return labels;
}

// F = 1/b sum of g g^T, whole.
Spectrum dense_fisher(const Case& c, const std::vector<Solution>& samples, int layer) {
  const auto size = static_cast<Eigen::Index>(c.layer_gradient(samples[0], layer).size());
  Eigen::MatrixXd fisher = Eigen::MatrixXd::Zero(size, size);
  for (const Solution& sample : samples) {
    const Numbers g = c.layer_gradient(sample, layer);
    const Eigen::Map<const Eigen::VectorXd> v(g.data(), size);
    fisher += v * v.transpose() / static_cast<double>(samples.size());
  }
  return spectrum(fisher);
}

class TinyNetwork : public testing::TestWithParam<const char*> {
 protected:
  Case tiny() const { return Case(GetParam() == std::string("mlp") ? mlp() : convnet()); }
};
INSTANTIATE_TEST_SUITE_P(nets, TinyNetwork, testing::Values("mlp", "convnet"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(TinyNetwork, fisher_is_exact_to_rounding) {
  const Case c = tiny();
  ASSERT_LE(c.model->parameter_elements(), 500);
  base::ThreadPool pool(2);
  const auto engine = c.engine(fisher_options());
  ASSERT_EQ(engine->forecast().curvature_samples, kSamples);
  const CurvatureReport& report = engine->curvature(0, kStep, pool);
  const std::vector<int32_t> labels = drawn_labels(c);
  const std::vector<Solution> exact = c.per_sample(labels, false);
  const std::vector<Solution> plain = c.per_sample(labels, true);
  ASSERT_EQ(report.layers.size(), static_cast<size_t>(c.model->layers));
  for (int layer = 0; layer < c.model->layers; ++layer) {
    const Spectrum want = dense_fisher(c, exact, layer), near = dense_fisher(c, plain, layer);
    const exec::LayerCurvature& got = report.layers[static_cast<size_t>(layer)];
    double trace = 0, off = 0;
    for (size_t k = 0; k < want.size(); ++k) {
      trace += want[k];
      off = std::max(off, std::abs(want[k] - near[k]));
    }
    // What plain fp32 code loses, which may happen to be little, and a few roundings of the sums.
    const double allowed = 16 * off + 0x1p-21 * trace;
    EXPECT_NEAR(got.trace, trace, allowed) << layer;
    for (size_t k = 0; k < kTop; ++k)
      EXPECT_NEAR(got.eigenvalues[k], want[k], allowed) << "layer " << layer << ", " << k;
  }
}

TEST_P(TinyNetwork, noise_is_that_of_true_labels) {
  const Case c = tiny();
  base::ThreadPool pool(2);
  const auto engine = c.engine(fisher_options());
  const CurvatureReport& report = engine->curvature(0, kStep, pool);
  const std::vector<Solution> samples = c.per_sample(c.problem.labels, false);
  const auto b = static_cast<double>(kSamples);
  double loss = 0, squares = 0, spread = 0, squared_mean = 0;
  std::vector<Numbers> all;
  for (const Solution& s : samples) {
    loss += s.loss / b;
    all.emplace_back();
    for (const Numbers& g : s.gradients) all.back().insert(all.back().end(), g.begin(), g.end());
  }
  for (size_t i = 0; i < all[0].size(); ++i) {
    double mean = 0;
    for (const Numbers& g : all) mean += g[i] / b;
    squared_mean += mean * mean;
    for (const Numbers& g : all) spread += (g[i] - mean) * (g[i] - mean) / (b - 1);
  }
  constexpr double kClose = 1e-5;
  EXPECT_NEAR(report.loss, loss, kClose * loss);
  for (size_t n = 0; n < all.size(); ++n) {
    const double want = norm(all[n]) * norm(all[n]);
    squares += want;
    EXPECT_NEAR(report.noise.squared_norms[n], want, kClose * want);
  }
  EXPECT_NEAR(report.noise.variance, spread, kClose * squares);
  EXPECT_NEAR(report.noise.squared_mean, squared_mean - spread / b, kClose * squares);
}

// Networks in which gradients are shared, scaled, concatenated and shuffled.
TEST(Fisher, has_the_trace_of_any_network) {
  base::ThreadPool pool(2);
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const Case c(random_network(seed), seed);
    const auto engine = c.engine(fisher_options());
    const CurvatureReport& report = engine->curvature(0, kStep, pool);
    if (report.samples != kSamples) continue;
    const std::vector<int32_t> labels = drawn_labels(c);
    const std::vector<Solution> exact = c.per_sample(labels, false);
    const std::vector<Solution> plain = c.per_sample(labels, true);
    for (int layer = 0; layer < c.model->layers; ++layer) {
      double want = 0, near = 0;
      for (size_t n = 0; n < exact.size(); ++n) {
        const auto squared = [&](const Solution& s) {
          return std::pow(norm(c.layer_gradient(s, layer)), 2) / double{kSamples};
        };
        want += squared(exact[n]);
        near += squared(plain[n]);
      }
      EXPECT_NEAR(report.layers[static_cast<size_t>(layer)].trace, want,
                  16 * std::abs(want - near) + 0x1p-17 * want)
          << "seed " << seed << ", layer " << layer;
    }
  }
}

// Of one layer, column by column from gradients of the mean loss. So small a step crosses no kink.
Eigen::MatrixXd dense_hessian(const Case& c, int layer) {
  constexpr double kMove = 1e-5;
  std::vector<Numbers> columns;
  Problem moved = c.problem;
  for (const nn::Node& node : c.model->nodes) {
    if (std::max(0, node.layer) != layer) continue;
    for (const int p : {node.weight, node.bias}) {
      if (p < 0) continue;
      for (double& value : moved.parameters[static_cast<size_t>(p)]) {
        const double before = value;
        value = before + kMove;
        Numbers column = c.layer_gradient(solve(*c.model, moved, &c.before), layer);
        value = before - kMove;
        const Numbers other = c.layer_gradient(solve(*c.model, moved, &c.before), layer);
        value = before;
        for (size_t i = 0; i < column.size(); ++i) column[i] = (column[i] - other[i]) / (2 * kMove);
        columns.push_back(std::move(column));
      }
    }
  }
  const auto size = static_cast<Eigen::Index>(columns.size());
  Eigen::MatrixXd hessian(size, size);
  for (Eigen::Index i = 0; i < size; ++i)
    for (Eigen::Index j = 0; j < size; ++j)
      hessian(i, j) = columns[static_cast<size_t>(j)][static_cast<size_t>(i)];
  return (hessian + hessian.transpose()) / 2;
}

EngineOptions hessian_options() {
  EngineOptions options = fisher_options();
  options.curvature.estimator = Estimator::kHessian;
  options.curvature.iterations = 2000;
  options.curvature.tolerance = 2e-3;
  return options;
}

TEST_P(TinyNetwork, hessian_has_the_eigenvalues_of_the_whole_matrix) {
  const Case c = tiny();
  base::ThreadPool pool(2);
  const auto engine = c.engine(hessian_options());
  const CurvatureReport& report = engine->curvature(0, kStep, pool);
  EXPECT_NEAR(report.loss, solve(*c.model, c.problem, &c.before).loss, 1e-5);
  for (int layer = 0; layer < c.model->layers; ++layer) {
    Spectrum want = spectrum(dense_hessian(c, layer));
    std::ranges::sort(want, [](double a, double b) { return std::abs(a) > std::abs(b); });
    want.resize(kTop);
    const double most = std::abs(want[0]);
    std::ranges::sort(want, std::greater<>());
    const exec::LayerCurvature& got = report.layers[static_cast<size_t>(layer)];
    for (size_t k = 0; k < kTop; ++k)
      EXPECT_NEAR(got.eigenvalues[k], want[k], 0.01 * std::abs(want[k]))
          << "layer " << layer << ", " << k << " of " << most << " after " << got.products;
  }
}

// The first product of power iteration, with the gradient as its vector, in networks where values
// have many readers and only some of the ticks are run again.
TEST(Hessian, multiplies_the_gradient_of_any_network) {
  constexpr double kMove = 1e-6;
  base::ThreadPool pool(2);
  size_t compared = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const Case c(random_network(seed), seed);
    EngineOptions options = hessian_options();
    options.curvature.top = options.curvature.iterations = 1;
    options.curvature.shrinks = false;
    const auto engine = c.engine(options);
    const CurvatureReport& report = engine->curvature(0, kStep, pool);
    const Solution here = solve(*c.model, c.problem, &c.before);
    if (here.margin < 10 * kMove) continue;
    for (int layer = 0; layer < c.model->layers; ++layer) {
      const Numbers g = c.layer_gradient(here, layer);
      const double length = norm(g);
      if (length == 0) continue;
      const auto moved_gradient = [&](double distance) {
        Problem moved = c.problem;
        for (const nn::Node& node : c.model->nodes)
          for (const int p : {node.weight, node.bias})
            if (p >= 0 && std::max(0, node.layer) == layer)
              for (size_t i = 0; i < moved.parameters[static_cast<size_t>(p)].size(); ++i)
                moved.parameters[static_cast<size_t>(p)][i] +=
                    distance / length * here.gradients[static_cast<size_t>(p)][i];
        return c.layer_gradient(solve(*c.model, moved, &c.before), layer);
      };
      Numbers product = moved_gradient(kMove);
      const Numbers other = moved_gradient(-kMove);
      double want = 0;
      for (size_t i = 0; i < g.size(); ++i) {
        product[i] = (product[i] - other[i]) / (2 * kMove);
        want += product[i] * g[i] / length;
      }
      const exec::LayerCurvature& got = report.layers[static_cast<size_t>(layer)];
      EXPECT_NEAR(got.eigenvalues[0], want, 0.01 * norm(product))
          << "seed " << seed << ", layer " << layer;
      ++compared;
    }
  }
  EXPECT_GT(compared, 30u);
}

// Training in 8 bits leaves no room for a pass in fp32 of the same batch.
TEST(Fisher, takes_a_smaller_batch_where_there_is_no_room) {
  nn::ModelOptions sizes;
  sizes.width_multiplier = 0.5;
  Result<nn::Model> built = nn::build("resnet18-cifar", sizes);
  ASSERT_TRUE(built.has_value()) << built.error().message;
  const auto model = std::make_shared<const nn::Model>(*std::move(built));
  const exec::LayerFormats narrow{Format::kF32, Format::kF8e5, Format::kF8e5, Format::kF32};
  EngineOptions options = fisher_options();
  options.curvature.samples = 8;
  options.step.mode = exec::StepMode::kFused;
  options.step.formats.assign(static_cast<size_t>(model->layers), narrow);
  base::ThreadPool pool(2);
  const auto engine = engine_for(model, draw_problem(*model, 2, 8, 0), options);
  options.curvature.estimator = Estimator::kNone;
  options.step.samples = 8;
  const auto without = exec::Engine::plan(model, options);
  EXPECT_EQ(engine->forecast().engine_peak_bytes, (*without)->forecast().engine_peak_bytes);
  const int64_t samples = engine->forecast().curvature_samples;
  EXPECT_GE(samples, 2);
  EXPECT_LT(samples, 8);
  EXPECT_EQ(engine->curvature(0, 1, pool).samples, samples);
  EXPECT_LE(engine->measured_peak_bytes(), engine->forecast().engine_peak_bytes);
}

TEST(Fisher, takes_as_many_samples_for_any_number_of_threads) {
  for (const std::string_view name : {"mlp", "convnet", "resnet18-cifar", "mobilenet-v2-cifar"}) {
    Result<nn::Model> built = nn::build(name, {.width_multiplier = 0.25});
    if (!built) built = nn::build(name, {});  // it has no width
    ASSERT_TRUE(built.has_value()) << built.error().message;
    const auto model = std::make_shared<const nn::Model>(*std::move(built));
    for (const int64_t batch : {8, 24, 48, 64, 96}) {
      EngineOptions options = fisher_options();
      options.curvature.samples = 32;
      options.step.samples = batch;
      options.step.mode = exec::StepMode::kFused;
      options.step.drop_light = true;
      options.step.formats.assign(static_cast<size_t>(model->layers),
                                  {Format::kBf16, Format::kBf16, Format::kBf16, Format::kF32});
      const auto samples_with = [&](size_t threads) {
        options.step.threads = threads;
        const auto engine = exec::Engine::plan(model, options);
        EXPECT_TRUE(engine.has_value());
        return (*engine)->forecast().curvature_samples;
      };
      const int64_t alone = samples_with(1);
      for (const size_t threads : {2, 8})
        EXPECT_EQ(alone, samples_with(threads)) << name << ", " << batch << ", " << threads;
    }
  }
}

bool same_bits(const CurvatureReport& a, const CurvatureReport& b) {
  for (size_t layer = 0; layer < a.layers.size(); ++layer)
    if (a.layers[layer].eigenvalues != b.layers[layer].eigenvalues ||
        a.layers[layer].trace != b.layers[layer].trace)
      return false;
  return a.loss == b.loss && a.noise.squared_norms == b.noise.squared_norms &&
         a.noise.scale == b.noise.scale;
}

TEST_P(TinyNetwork, measures_the_same_bits_for_any_number_of_threads_and_changes_nothing) {
  const Case c = tiny();
  for (EngineOptions options : {fisher_options(), hessian_options()}) {
    options.curvature.iterations = 3;
    const auto engine = c.engine(options);
    const auto before = weights(*engine);
    base::ThreadPool one(1);
    const CurvatureReport first = engine->curvature(0, kStep, one);
    for (const size_t threads : {1, 2, 3}) {
      base::ThreadPool pool(threads);
      EXPECT_TRUE(same_bits(first, engine->curvature(0, kStep, pool))) << threads;
    }
    EXPECT_EQ(weights(*engine), before);
    const auto again = c.engine(options);
    EXPECT_TRUE(same_bits(first, again->curvature(0, kStep, one)));
  }
}

}  // namespace
}  // namespace tri::contract
