#include "exec/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"
#include "nn/init.h"
#include "simd/convert.h"

namespace tri::exec {
namespace {

size_t padded(size_t bytes) { return (bytes + 63) / 64 * 64; }

// A curvature pass of a tiny network is mostly scratch, which a smaller batch would not shrink.
constexpr size_t kSmallPass = 1 << 20;

struct BatchLayout {
  BatchLayout(const Shape& shape, int64_t count) {
    const auto samples = static_cast<size_t>(count);
    x = 0;
    labels = padded(samples * static_cast<size_t>(shape.elements()) * sizeof(float));
    ids = labels + padded(samples * sizeof(int32_t));
    bytes = ids + padded(samples * sizeof(uint64_t));
  }
  size_t x, labels, ids, bytes;
};

}  // namespace

Engine::Engine(std::shared_ptr<const nn::Model> model, const EngineOptions& options)
    : model_(std::move(model)), options_(options) {}

Result<std::unique_ptr<Engine>> Engine::plan(std::shared_ptr<const nn::Model> model,
                                             const EngineOptions& options) {
  const StepSpec& step = options.step;
  if (step.samples < 1 || step.samples > ops::kMaxExtent)
    return unexpected(ErrorCode::kInvalid, fmt::format("a batch of {} samples; give 1 to {}",
                                                       step.samples, ops::kMaxExtent));
  if (step.ghost < 0 || (step.ghost > 0 && step.samples % step.ghost != 0))
    return unexpected(ErrorCode::kInvalid,
                      fmt::format("a batch of {} is not a multiple of the ghost batch of {}; "
                                  "choose a divisor of the batch",
                                  step.samples, step.ghost));
  std::unique_ptr<Engine> engine(new Engine(std::move(model), options));
  engine->make_plans();
  engine->make_forecast();
  return engine;
}

void Engine::make_plans() {
  train_graph_ = lower(*model_, {true, options_.store});
  eval_graph_ = lower(*model_, {false, false});
  parameters_ = std::make_unique<Parameters>(*model_, options_.forms);
  train_ = plan_step(train_graph_, *parameters_, options_.step);
  plan_curvature();
  if (!options_.evaluates) return;
  StepSpec spec = options_.step;
  spec.training = false;
  spec.ghost = 0;
  for (;; spec.samples = (spec.samples + 1) / 2) {
    eval_ = plan_step(eval_graph_, *parameters_, spec);
    if (eval_.arena_bytes <= train_.arena_bytes || spec.samples == 1) return;
  }
}

// The network as evaluation sees it, stored and differentiated in fp32 whatever the table says of
// training: what is measured is the loss, not the rounding of its gradients.
void Engine::plan_curvature() {
  if (options_.curvature.estimator == Estimator::kNone || options_.step.samples < 2) return;
  StepSpec spec = options_.step;
  spec.curvature = options_.curvature;
  spec.ghost = 0;
  spec.mode = StepMode::kAfter;
  if (spec.curvature.estimator == Estimator::kFisher) spec.label_smoothing = 0.0f;
  for (LayerFormats& row : spec.formats) row = {row.p, Format::kF32, Format::kF32, Format::kF32};
  spec.samples = std::clamp<int64_t>(options_.curvature.samples, 2, options_.step.samples);
  for (;; spec.samples = std::max<int64_t>(2, spec.samples / 2)) {
    curvature_ = plan_step(eval_graph_, *parameters_, spec);
    if (!spec.curvature.shrinks || spec.samples == 2 ||
        curvature_.arena_bytes <= std::max(train_.arena_bytes, kSmallPass))
      break;
  }
  forecast_.curvature_samples = spec.samples;
}

void Engine::make_forecast() {
  const BatchLayout layout(model_->input_shape(), options_.step.samples);
  data_offset_ = padded(parameters_->bytes());
  batch_bytes_ = layout.bytes;
  step_offset_ = data_offset_ + options_.batch_buffers * batch_bytes_;
  forecast_.engine_peak_bytes =
      step_offset_ + std::max({train_.arena_bytes, eval_.arena_bytes, curvature_.arena_bytes});
  forecast_.by_kind = train_.peak_by_kind;
  for (const memory::Kind kind : memory::kKinds) {
    forecast_.by_kind[kind] = std::max(
        {forecast_.by_kind[kind], eval_.peak_by_kind[kind], curvature_.peak_by_kind[kind]});
    forecast_.by_kind[kind] += parameters_->by_kind()[kind];
  }
  forecast_.by_kind[memory::Kind::kData] += options_.batch_buffers * batch_bytes_;
  forecast_.eval_samples = options_.evaluates ? eval_.spec.samples : 0;
  forecast_.params = model_->parameter_elements();
  // The first layer needs no gradient of its input; every other product is done three times.
  double macs = 3.0 * static_cast<double>(train_.macs);
  for (size_t i = 0; i < train_graph_.ops.size(); ++i)
    if (train_graph_.ops[i].inputs[0] == 0 && train_.operations[i] != nullptr)
      macs -= static_cast<double>(train_.operations[i]->needs().macs);
  forecast_.useful_gflop = 2e-9 * macs * static_cast<double>(options_.step.samples);

  forecast_.layers.resize(static_cast<size_t>(model_->layers));
  for (size_t p = 0; p < parameters_->size(); ++p) {
    const ParameterSlot& slot = parameters_->slot(p);
    const nn::Node& node = model_->nodes[static_cast<size_t>(slot.node)];
    LayerForecast& layer = forecast_.layers[static_cast<size_t>(std::max(0, node.layer))];
    if (slot.dense) layer.name = node.name;
    layer.params += model_->parameters[p].elements();
    layer.weights_bytes += slot.weight_bytes;
    layer.state_bytes += slot.state_bytes;
  }
  for (const Buffer& buffer : train_.buffers)
    if (buffer.layer >= 0 && buffer.kind == memory::Kind::kActivations &&
        buffer.end == memory::End::kSaved)
      forecast_.layers[static_cast<size_t>(buffer.layer)].saved_bytes += buffer.bytes;
}

Result<void> Engine::obtain(uint64_t seed) {
  TRI_ASSIGN(arena_, memory::Arena::reserve(forecast_.engine_peak_bytes));
  TRI_TRY(arena_.resize(forecast_.engine_peak_bytes));
  seed_ = seed;
  for (const memory::Kind kind : memory::kKinds)
    if (parameters_->by_kind()[kind] > 0) bind(0, parameters_->by_kind()[kind], kind);
  measured_peak_ = std::max(measured_peak_, parameters_->bytes());
  bind(data_offset_, options_.batch_buffers * batch_bytes_, memory::Kind::kData);
  parameters_->bind(arena_.data());
  std::vector<float> values;
  for (size_t p = 0; p < parameters_->size(); ++p) {
    values.resize(static_cast<size_t>(model_->parameters[p].elements()));
    nn::draw_initial(*model_, p, seed, values);
    parameters_->set(p, values);
  }
  hypers_.assign(parameters_->size(), optim::Hyper{});
  coefficients_.resize(parameters_->size());
  report_.gradients.resize(parameters_->size());
  report_.saved.resize(std::max(train_graph_.tensors.size(), eval_graph_.tensors.size()));
  report_.passed.resize(report_.saved.size());
  size_t most = 1;
  for (const LoweredOp& op : train_graph_.ops) most = std::max(most, op.inputs.size() + 1);
  tick_ns_.reserve(std::max({train_.ticks.size(), eval_.ticks.size(), curvature_.ticks.size()}));
  if (forecast_.curvature_samples > 0) prepare_curvature();
  sources_.reserve(most);
  sinks_.reserve(most);
  return {};
}

BatchRoom Engine::batch(size_t buffer) {
  TRI_CHECK(buffer < options_.batch_buffers, "buffer {}", buffer);
  const auto samples = static_cast<size_t>(options_.step.samples);
  const BatchLayout layout(model_->input_shape(), options_.step.samples);
  std::byte* first = arena_.data() + data_offset_ + buffer * batch_bytes_;
  return {{reinterpret_cast<float*>(first + layout.x),
           samples * static_cast<size_t>(model_->input_shape().elements())},
          {reinterpret_cast<int32_t*>(first + layout.labels), samples},
          {reinterpret_cast<uint64_t*>(first + layout.ids), samples}};
}

void Engine::bind(size_t offset, size_t bytes, memory::Kind kind) {
  ledger_.bind(kind, bytes);
  measured_peak_ = std::max(measured_peak_, offset + bytes);
}

const StepReport& Engine::train(size_t buffer, uint64_t step, base::ThreadPool& pool) {
  for (size_t p = 0; p < hypers_.size(); ++p) {
    hypers_[p].step = static_cast<int64_t>(step);
    coefficients_[p] = optim::coefficients(options_.step.rule, hypers_[p]);
  }
  return run(train_, buffer, step, pool);
}

const StepReport& Engine::evaluate(size_t buffer, int64_t count, base::ThreadPool& pool) {
  TRI_CHECK(count >= 1 && count <= forecast_.eval_samples, "count {}", count);
  if (count != eval_.spec.samples) {
    StepSpec spec = eval_.spec;
    spec.samples = count;
    eval_ = plan_step(eval_graph_, *parameters_, spec);
  }
  return run(eval_, buffer, 0, pool);
}

// Everything the pass and its report need outside the arena.
void Engine::prepare_curvature() {
  const CurvatureSpec& spec = curvature_.spec.curvature;
  solver_ = std::make_unique<SymmetricEigen>(curvature_.spec.samples);
  curvature_report_.samples = curvature_.spec.samples;
  curvature_report_.layers.resize(static_cast<size_t>(model_->layers));
  for (LayerCurvature& layer : curvature_report_.layers) layer.eigenvalues.resize(spec.top);
  curvature_report_.noise.squared_norms.resize(static_cast<size_t>(curvature_.spec.samples));
  if (spec.estimator == Estimator::kHessian)
    measuring_.probe.replaced.assign(parameters_->size(), nullptr);
}

const CurvatureReport& Engine::curvature(size_t buffer, int64_t count, uint64_t step,
                                         base::ThreadPool& pool) {
  TRI_CHECK(count >= 2 && count <= forecast_.curvature_samples, "count {}", count);
  if (count != curvature_.spec.samples) {
    StepSpec spec = curvature_.spec;
    spec.samples = count;
    curvature_ = plan_step(eval_graph_, *parameters_, spec);
    prepare_curvature();
  }
  const CurvatureSpec& spec = curvature_.spec.curvature;
  measuring_.true_labels = false;
  measuring_.solver = solver_.get();
  measuring_.report = &curvature_report_;
  run(curvature_, buffer, step, pool);
  if (spec.estimator == Estimator::kFisher && spec.noise) {
    measuring_.true_labels = true;
    run(curvature_, buffer, step, pool);
  }
  return curvature_report_;
}

const StepReport& Engine::run(const StepPlan& plan, size_t buffer, uint64_t step,
                              base::ThreadPool& pool) {
  TRI_CHECK(pool.threads() <= plan.spec.threads, "planned for {} threads", plan.spec.threads);
  const BatchRoom room = batch(buffer);
  StepRun context;
  context.plan = &plan;
  context.parameters = parameters_.get();
  context.pool = &pool;
  context.region = arena_.data() + step_offset_;
  context.batch = {room.x.data(), room.labels.data(), room.samples.data()};
  // Per-sample gradients are those of the sum of losses.
  const bool sums = plan.spec.curvature.estimator == Estimator::kFisher;
  context.grad_scale = sums ? 1.0f : 1.0f / static_cast<float>(plan.spec.samples);
  context.seed = seed_;
  context.step = step;
  context.coefficients = coefficients_.data();
  context.hypers = hypers_.data();
  context.report = &report_;
  context.sources = &sources_;
  context.sinks = &sinks_;
  context.curvature = &measuring_;
  std::ranges::fill(report_.passed, ops::StoreCounts{});
  std::array<int64_t, 3> spent{};
  tick_ns_.clear();
  int64_t before = base::now_ns();
  for (const Tick& tick : plan.ticks) {
    for (const int b : tick.begins) {
      const Buffer& made = plan.buffers[static_cast<size_t>(b)];
      bind(step_offset_ + made.offset, made.bytes, made.kind);
    }
    tick.run(context);
    for (const int b : tick.ends) {
      const Buffer& done = plan.buffers[static_cast<size_t>(b)];
      ledger_.unbind(done.kind, done.bytes);
    }
    const int64_t after = base::now_ns();
    spent[static_cast<size_t>(tick.phase)] += after - before;
    tick_ns_.push_back(after - before);
    before = after;
  }
  phases_ = {1e-9 * static_cast<double>(spent[0]), 1e-9 * static_cast<double>(spent[1]),
             1e-9 * static_cast<double>(spent[2])};
  last_ = &plan;
  return report_;
}

void Engine::logits(std::span<float> out) const {
  TRI_CHECK(last_ != nullptr);
  StepRun context;
  context.plan = last_;
  context.region = const_cast<std::byte*>(arena_.data()) + step_offset_;
  context.parameters = parameters_.get();
  const int64_t classes = model_->classes();
  TRI_CHECK(out.size() == static_cast<size_t>(last_->spec.samples * classes));
  const ops::Source source = context.source(last_->graph->logits);
  for (int64_t n = 0; n < last_->spec.samples; ++n)
    ops::load_rows(source, {n, 0, 1, 0, classes}, out.data() + n * classes, classes);
}

void Engine::gradient(size_t parameter, std::span<float> out) const {
  TRI_CHECK(!options_.step.update && train_.gradients[parameter] >= 0);
  const ParameterSlot& slot = parameters_->slot(parameter);
  const Buffer& kept = train_.buffers[static_cast<size_t>(train_.gradients[parameter])];
  const int layer = model_->nodes[static_cast<size_t>(slot.node)].layer;
  std::vector<float> stored(slot.count);
  simd::decode(slot.dense ? train_.formats(layer).gp : Format::kF32,
               arena_.data() + step_offset_ + kept.offset, stored.data(), stored.size());
  if (slot.dense)
    ops::unpack_weights(slot.geometry, stored.data(), out.data());
  else
    std::copy_n(stored.begin(), out.size(), out.begin());
}

}  // namespace tri::exec
