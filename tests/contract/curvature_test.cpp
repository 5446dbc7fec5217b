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
  const CurvatureReport& report = engine->curvature(0, kSamples, kStep, pool);
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
  const CurvatureReport& report = engine->curvature(0, kSamples, kStep, pool);
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
    const CurvatureReport& report =
        engine->curvature(0, engine->forecast().curvature_samples, kStep, pool);
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
  EngineOptions options = fisher_options();
  const auto engine = c.engine(options);
  const auto before = weights(*engine);
  base::ThreadPool one(1);
  const CurvatureReport first = engine->curvature(0, kSamples, kStep, one);
  for (const size_t threads : {1, 2, 3}) {
    base::ThreadPool pool(threads);
    EXPECT_TRUE(same_bits(first, engine->curvature(0, kSamples, kStep, pool))) << threads;
  }
  EXPECT_EQ(weights(*engine), before);
  EXPECT_EQ(engine->measured_peak_bytes() <= engine->forecast().engine_peak_bytes, true);
}

}  // namespace
}  // namespace tri::contract
