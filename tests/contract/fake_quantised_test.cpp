// One step in narrow formats against the same step in fp32 with every value rounded, and widened
// again, at the places where the narrow step stores it: bit for bit. So a format changes what is
// stored and nothing else: no kernel, order or statistic knows it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "contract/random_graph.h"
#include "contract/small_network.h"
#include "contract/trial.h"
#include "exec/step_run.h"
#include "numeric/round.h"
#include "ops/conv2d/pair_kernel.h"
#include "optim/update.h"

namespace tri::contract {
namespace {

using exec::LayerFormats;
using exec::LayerScales;
using numeric::Format;

constexpr int64_t kQuantisedSamples = 4;
constexpr float kLossScale = 256;

float rounded(Format format, float scale, float value) {
  if (format == Format::kF32) return value;
  return numeric::decode(format, numeric::encode(format, value * scale).bits) / scale;
}

// Memory on a boundary of 64 bytes.
struct Room {
  explicit Room(size_t bytes) : memory(bytes + 64) {
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    first = memory.data() + (64 - address % 64) % 64;
  }
  std::vector<std::byte> memory;
  std::byte* first;
};

// The plan of a narrow step with room for fp32 in every buffer.
class WideStep {
 public:
  WideStep(std::shared_ptr<const nn::Model> model, const Problem& problem,
           const std::vector<LayerFormats>& formats, const std::vector<LayerScales>& scales)
      : model_(std::move(model)),
        graph_(exec::lower(*model_, {true, false})),
        formats_(formats),
        scales_(scales),
        parameters_(*model_, {}),
        persistent_(parameters_.bytes()) {
    parameters_.bind(persistent_.first);
    for (size_t p = 0; p < parameters_.size(); ++p) {
      std::vector<float> values(problem.parameters[p].begin(), problem.parameters[p].end());
      if (parameters_.slot(p).dense)
        for (float& v : values) v = rounded(row(p).p, 1, v);
      parameters_.set(p, values);
    }
    exec::StepSpec spec;
    spec.samples = problem.samples;
    spec.ghost = problem.ghost;
    spec.threads = 2;
    spec.update = false;
    spec.label_smoothing = static_cast<float>(problem.smoothing);
    // Which buffers tensors share depends on their formats; what is multiplied, on that of weights
    // (Note [AVX3_BF16] in simd/target.h).
    for (const LayerFormats& narrow : formats_)
      spec.formats.push_back(
          {ops::products_for(narrow.p) == ops::Products::kBf16 ? Format::kBf16 : Format::kF32,
           narrow.y, narrow.gy, Format::kF32});
    plan_ = exec::plan_step(graph_, parameters_, spec);
    narrow_ = plan_.tensors;
    size_t bytes = 0;
    for (exec::Buffer& buffer : plan_.buffers) {
      buffer.bytes *= sizeof(float);
      for (exec::Life& life : buffer.lives) life.offset = bytes;
      bytes += buffer.bytes;
    }
    for (exec::TensorSlots& slots : plan_.tensors) slots.y = slots.gy = Format::kF32;
    // Values are rounded between ticks: nobody may look at them within one. Rows that are passed to
    // a norm change before they are rounded; its sums are made again when they are.
    for (exec::NormSlots& norm : plan_.norms) {
      norm.watched = false;
      norm.grad_watched = norm.grad_watched && norm.grad_passed && norm.rewrites;
    }
    region_ = std::make_unique<Room>(bytes);
    run(problem);
  }

  double loss() const { return report_.loss.loss; }
  const exec::Parameters& parameters() const { return parameters_; }
  // As stored, rounded to GP.
  std::vector<float> gradient(size_t p) const {
    const float* kept = at(plan_.gradients[p]);
    std::vector<float> values(kept, kept + parameters_.slot(p).count);
    if (parameters_.slot(p).dense)
      for (float& v : values) v = rounded(row(p).gp, 1, v);
    return values;
  }
  // In PyTorch's order.
  std::vector<float> plain_gradient(size_t p) const {
    const std::vector<float> stored = gradient(p);
    std::vector<float> values(static_cast<size_t>(model_->parameters[p].elements()));
    if (parameters_.slot(p).dense)
      ops::unpack_weights(parameters_.slot(p).geometry, stored.data(), values.data());
    else
      std::copy_n(stored.begin(), values.size(), values.begin());
    return values;
  }

 private:
  const LayerFormats& row(size_t p) const {
    const int node = parameters_.slot(p).node;
    return formats_[static_cast<size_t>(model_->nodes[static_cast<size_t>(node)].layer)];
  }
  float* at(int buffer) const {
    const exec::Buffer& b = plan_.buffers[static_cast<size_t>(buffer)];
    return reinterpret_cast<float*>(region_->first + b.lives.front().offset);
  }

  void run(const Problem& problem) {
    const std::vector<float> x(problem.x.begin(), problem.x.end());
    base::ThreadPool pool(2);
    report_.gradients.resize(parameters_.size());
    report_.saved.resize(graph_.tensors.size());
    report_.passed.resize(graph_.tensors.size());
    report_.lost.resize(static_cast<size_t>(model_->layers) + 1);
    std::vector<ops::Source> sources;
    std::vector<ops::Sink> sinks;
    exec::StepRun step;
    step.plan = &plan_;
    step.parameters = &parameters_;
    step.pool = &pool;
    step.region = region_->first;
    step.batch = {x.data(), problem.labels.data(), problem.ids.data()};
    step.grad_scale = kLossScale / static_cast<float>(problem.samples);
    step.seed = problem.seed;
    step.step = 1;
    step.scales = scales_.data();
    step.report = &report_;
    step.sources = &sources;
    step.sinks = &sinks;
    for (step.tick = 0; step.tick < plan_.ticks.size(); ++step.tick) {
      plan_.ticks[step.tick].run(step);
      round_all();
      sum_passed_again(step);
    }
  }

  // Of gradients that are not there yet, or no more, the sums are of no use and no harm.
  void sum_passed_again(const exec::StepRun& step) {
    for (size_t n = 0; n < plan_.norms.size(); ++n) {
      const exec::NormSlots& slots = plan_.norms[n];
      if (!slots.grad_watched) continue;
      const auto norm = static_cast<int>(n);
      ops::NormGradSums(*slots.plan, step.grad_source(graph_.norms[n].tensor, true),
                        step.norm_batch(norm).mean, ops::Rewrite::kWhenPassed,
                        step.at(slots.grad_sums))
          .make_all(*step.pool);
    }
  }

  // What has been rounded before stays as it is.
  void round_all() {
    const auto round = [&](size_t t, int buffer, Format format, float scale) {
      if (buffer < 0 || format == Format::kF32) return;
      if (!ops::takes_scale(format)) scale = 1;
      float* values = at(buffer);
      for (int64_t i = 0; i < kQuantisedSamples * graph_.tensors[t].shape.elements(); ++i)
        values[i] = rounded(format, scale, values[i]);
    };
    for (size_t t = 1; t < graph_.tensors.size(); ++t) {
      const exec::TensorSlots& slots = narrow_[t];
      const int layer = graph_.tensors[t].layer;
      round(t, slots.data, slots.y, layer < 0 ? 1 : scales_[static_cast<size_t>(layer)].y);
      if (slots.grad < 0) continue;
      const int of_grad = plan_.buffers[static_cast<size_t>(slots.grad)].layer;
      round(t, slots.grad, slots.gy, of_grad < 0 ? 1 : scales_[static_cast<size_t>(of_grad)].gy);
    }
  }

  std::shared_ptr<const nn::Model> model_;
  exec::Lowered graph_;
  std::vector<LayerFormats> formats_;
  std::vector<LayerScales> scales_;
  exec::Parameters parameters_;
  Room persistent_;
  exec::StepPlan plan_;
  std::vector<exec::TensorSlots> narrow_;
  std::unique_ptr<Room> region_;
  exec::StepReport report_;
};

struct Table {
  const char* name;
  std::vector<LayerFormats> rows;  // layers take turns
  LayerScales scales = {};
};

constexpr LayerFormats kFp8{Format::kF8e4b4, Format::kF8e4b4, Format::kF8e5, Format::kF16e6};
constexpr LayerFormats kHigh{Format::kF16e6, Format::kF16e6, Format::kF16e6, Format::kF16e6};
constexpr LayerFormats kBf16{Format::kBf16, Format::kBf16, Format::kBf16, Format::kF32};
constexpr LayerFormats kFp16{Format::kF16, Format::kF16, Format::kF16, Format::kF32};

const std::array<Table, 8> kTables = {{
    {"fp32", {LayerFormats{}}},
    {"bf16", {kBf16}},
    {"fp16", {kFp16}},
    {"fp16_scaled", {kFp16}, {8, 64}},
    {"fp16_169", {kHigh}},
    {"fp8", {kFp8}},
    {"assigned", {kFp8, kHigh, kHigh, kFp8, kFp8}},
    {"mixed",
     {kBf16,
      kFp8,
      LayerFormats{},
      kFp16,
      {Format::kF32, Format::kF8e4b4, Format::kBf16, Format::kBf16},
      kHigh},
     {4, 16}},
}};

// Inverted residuals with squeeze-excite, a convolution that runs as Winograd, a residual of two
// layers that may have different formats.
std::shared_ptr<const nn::Model> mobile_network() {
  Graph graph("mobile", {.height = 8, .width = 8, .channels = 3});
  Tensor x = graph.conv(graph.input(), "stem", {.out = 32, .kernel = 3, .padding = 1});
  x = graph.silu(graph.batch_norm(x, "norm1"));
  Tensor y = graph.conv(x, "winograd", {.out = 32, .kernel = 3, .padding = 1, .bias = false});
  y = graph.relu(graph.batch_norm(y, "norm2"));
  y = graph.silu(graph.batch_norm(graph.conv(y, "expand", {.out = 32, .bias = false}), "norm5"));
  y = graph.conv(y, "depthwise", {.out = 32, .kernel = 3, .padding = 1, .groups = 32});
  y = graph.silu(graph.batch_norm(y, "norm3"));
  Tensor f = graph.silu(graph.conv(graph.global_avg_pool(y), "squeeze", {.out = 6}));
  y = graph.scale(y, graph.sigmoid(graph.conv(f, "excite", {.out = 32})));
  y = graph.batch_norm(graph.conv(y, "project", {.out = 32, .bias = false}), "norm4");
  x = graph.relu(graph.add(graph.stochastic_depth(y, 0.3f), x));
  x = graph.max_pool(x, {.kernel = 2, .stride = 2});
  x = graph.relu6(graph.conv(x, "grouped", {.out = 12, .kernel = 3, .groups = 4}));
  x = graph.dropout(graph.flatten(graph.global_avg_pool(x)), 0.2f);
  return finish(graph, graph.linear(x, "head", {.out = 7}));
}

class FakeQuantised : public testing::TestWithParam<Table> {};

// False: the step was lost, which says nothing.
bool expect_the_same_step(const std::shared_ptr<const nn::Model>& model, uint64_t seed) {
  const Table& table = FakeQuantised::GetParam();
  std::vector<LayerFormats> formats;
  for (size_t l = 0; l < static_cast<size_t>(model->layers); ++l)
    formats.push_back(table.rows[(l + seed) % table.rows.size()]);
  const std::vector<LayerScales> scales(formats.size(), table.scales);
  const Problem problem =
      draw_problem(*model, seed, kQuantisedSamples, seed % 2 == 0 ? 0 : kQuantisedSamples / 2);
  const WideStep want(model, problem, formats, scales);

  base::ThreadPool pool(2);
  exec::EngineOptions options;
  options.step.threads = 2;
  options.step.formats = formats;
  options.step.update = false;
  const auto engine = engine_for(model, problem, options);
  std::ranges::copy(scales, engine->scales().begin());
  const exec::StepReport& report = engine->train(0, {.step = 1, .loss_scale = kLossScale}, pool);
  if (report.skipped) return false;
  EXPECT_EQ(report.loss.loss, want.loss());
  const auto got = gradients(*engine);
  for (size_t p = 0; p < got.size(); ++p)
    EXPECT_EQ(got[p], want.plain_gradient(p)) << model->parameters[p].name;
  for (size_t n = 0; n < model->nodes.size(); ++n) {
    if (model->nodes[n].kind != ops::OpKind::kBatchNorm) continue;
    const auto node = static_cast<int>(n);
    EXPECT_TRUE(std::ranges::equal(engine->parameters().running_mean(node),
                                   want.parameters().running_mean(node)));
    EXPECT_TRUE(std::ranges::equal(engine->parameters().running_variance(node),
                                   want.parameters().running_variance(node)));
  }

  // And the weights that come of it, fused as users run it.
  options.step.update = true;
  options.step.mode = exec::StepMode::kFused;
  const auto fused = engine_for(model, problem, options);
  std::ranges::copy(scales, fused->scales().begin());
  set_rates(*fused);
  std::vector<optim::Hyper> hypers(fused->hypers().begin(), fused->hypers().end());
  exec::Parameters stepped(*model, options.forms);
  const Room room(stepped.bytes());
  stepped.bind(room.first);
  for (size_t p = 0; p < stepped.size(); ++p) {
    const Numbers& values = problem.parameters[p];
    stepped.set(p, std::vector<float>(values.begin(), values.end()));
    hypers[p].grad_scale /= double{kLossScale};
    const std::vector<float> gradient = want.gradient(p);
    optim::update(optim::coefficients(options.step.rule, hypers[p]), stepped.slot(p).storage, 0,
                  gradient.size(), gradient.data(), {});
  }
  EXPECT_FALSE(fused->train(0, {.step = 1, .loss_scale = kLossScale}, pool).skipped);
  const auto moved = weights(*fused);
  for (size_t p = 0; p < moved.size(); ++p) {
    std::vector<float> values(moved[p].size());
    stepped.get(p, values);
    EXPECT_EQ(moved[p], values) << model->parameters[p].name;
  }
  return true;
}

TEST_P(FakeQuantised, step_of_a_mobile_network_is_the_narrow_step) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE(seed);
    EXPECT_TRUE(expect_the_same_step(mobile_network(), seed));
  }
}

// Both contributions to the gradient of such a tensor are made, and rounded, in one tick.
bool reads_a_tensor_twice(const nn::Model& model) {
  const exec::Lowered graph = exec::lower(model, {true, false});
  return std::ranges::any_of(graph.ops, [](const exec::LoweredOp& op) {
    std::vector<int> inputs = op.inputs;
    std::ranges::sort(inputs);
    return std::ranges::adjacent_find(inputs) != inputs.end();
  });
}

TEST_P(FakeQuantised, step_of_a_random_network_is_the_narrow_step) {
  int used = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const auto model = random_network(seed);
    if (reads_a_tensor_twice(*model)) continue;
    SCOPED_TRACE(seed);
    if (expect_the_same_step(model, seed)) ++used;
  }
  EXPECT_GE(used, 12);
}

INSTANTIATE_TEST_SUITE_P(tables, FakeQuantised, testing::ValuesIn(kTables),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace tri::contract
