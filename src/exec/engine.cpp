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

// Of one sample: operations whose output is dropped and made again.
double recomputed_macs(const StepPlan& plan) {
  double macs = 0;
  for (size_t i = 0; i < plan.operations.size(); ++i) {
    const int data = plan.tensors[static_cast<size_t>(plan.graph->ops[i].output)].data;
    if (plan.operations[i] == nullptr || data < 0) continue;
    if (plan.buffers[static_cast<size_t>(data)].dropped())
      macs += static_cast<double>(plan.operations[i]->needs().macs);
  }
  return macs;
}

}  // namespace

Engine::Engine(std::shared_ptr<const nn::Model> model, const EngineOptions& options)
    : model_(std::move(model)), options_(options) {}

namespace {

Result<void> check_spec(const StepSpec& step) {
  if (step.samples < 1 || step.samples > ops::kMaxExtent)
    return unexpected(ErrorCode::kInvalid, fmt::format("a batch of {} samples; give 1 to {}",
                                                       step.samples, ops::kMaxExtent));
  if (step.ghost < 0 || (step.ghost > 0 && step.samples % step.ghost != 0))
    return unexpected(ErrorCode::kInvalid,
                      fmt::format("a batch of {} is not a multiple of the ghost batch of {}; "
                                  "choose a divisor of the batch",
                                  step.samples, step.ghost));
  return {};
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::plan(std::shared_ptr<const nn::Model> model,
                                             const EngineOptions& options) {
  TRI_TRY(check_spec(options.step));
  std::unique_ptr<Engine> engine(new Engine(std::move(model), options));
  engine->train_graph_ = lower(*engine->model_, {true, options.store});
  engine->eval_graph_ = lower(*engine->model_, {false, false});
  engine->parameters_ = std::make_unique<Parameters>(*engine->model_, options.forms);
  engine->now_ = engine->lay_out(options.step);
  return engine;
}

Engine::Layout Engine::lay_out(const StepSpec& step) const {
  Layout layout;
  layout.train = plan_step(train_graph_, *parameters_, step);
  if (options_.evaluates) {
    StepSpec spec = step;
    spec.training = false;
    spec.ghost = 0;
    spec.micros = 1;
    spec.recompute.clear();
    for (;; spec.samples = (spec.samples + 1) / 2) {
      layout.eval = plan_step(eval_graph_, *parameters_, spec);
      if (layout.eval.arena_bytes <= layout.train.arena_bytes || spec.samples == 1) break;
    }
  }
  layout.curvature = plan_curvature(layout.train);
  layout.batch_bytes = BatchLayout(model_->input_shape(), step.samples).bytes;
  layout.data_offset = padded(parameters_->bytes());
  layout.step_offset = layout.data_offset + options_.batch_buffers * layout.batch_bytes;
  layout.forecast = forecast_of(layout);
  return layout;
}

Forecast Engine::forecast_of(const Layout& layout) const {
  const StepPlan& train = layout.train;
  Forecast forecast;
  forecast.engine_peak_bytes =
      layout.step_offset +
      std::max({train.arena_bytes, layout.eval.arena_bytes, layout.curvature.arena_bytes});
  forecast.by_kind = train.peak_by_kind;
  for (const memory::Kind kind : memory::kKinds) {
    forecast.by_kind[kind] = std::max({forecast.by_kind[kind], layout.eval.peak_by_kind[kind],
                                       layout.curvature.peak_by_kind[kind]});
    forecast.by_kind[kind] += parameters_->by_kind()[kind];
  }
  forecast.by_kind[memory::Kind::kData] += options_.batch_buffers * layout.batch_bytes;
  forecast.eval_samples = options_.evaluates ? layout.eval.spec.samples : 0;
  forecast.curvature_samples = layout.curvature.ticks.empty() ? 0 : layout.curvature.spec.samples;
  forecast.params = model_->parameter_elements();
  // The first layer needs no gradient of its input; every other product is done three times.
  double macs = 3.0 * static_cast<double>(train.macs);
  for (size_t i = 0; i < train_graph_.ops.size(); ++i)
    if (train_graph_.ops[i].inputs[0] == 0 && train.operations[i] != nullptr)
      macs -= static_cast<double>(train.operations[i]->needs().macs);
  forecast.useful_gflop = 2e-9 * macs * static_cast<double>(train.spec.batch());
  forecast.again = macs > 0 ? recomputed_macs(train) / macs : 0;

  forecast.layers.resize(static_cast<size_t>(model_->layers));
  for (size_t p = 0; p < parameters_->size(); ++p) {
    const ParameterSlot& slot = parameters_->slot(p);
    const nn::Node& node = model_->nodes[static_cast<size_t>(slot.node)];
    LayerForecast& layer = forecast.layers[static_cast<size_t>(std::max(0, node.layer))];
    if (slot.dense) layer.name = node.name;
    layer.params += model_->parameters[p].elements();
    layer.weights_bytes += slot.weight_bytes;
    layer.state_bytes += slot.state_bytes;
  }
  for (size_t i = 0; i < train_graph_.ops.size(); ++i) {
    const int node = train_graph_.ops[i].node;
    if (node < 0 || model_->nodes[static_cast<size_t>(node)].weight < 0) continue;
    const int row = model_->nodes[static_cast<size_t>(node)].layer;
    LayerForecast& layer = forecast.layers[static_cast<size_t>(row)];
    layer.kernels = train.operations[i]->needs().kernels;
    layer.multiplies_bf16 = train.operations[i]->needs().multiplies_bf16;
    layer.others = train.operations[i]->needs().others;
  }
  for (const Buffer& buffer : train.buffers)
    if (buffer.layer >= 0 && buffer.kind == memory::Kind::kActivations &&
        buffer.end == memory::End::kSaved && !buffer.dropped())
      forecast.layers[static_cast<size_t>(buffer.layer)].saved_bytes += buffer.bytes;
  return forecast;
}

Result<void> Engine::obtain(uint64_t seed) {
  const size_t bytes = now_.forecast.engine_peak_bytes;
  TRI_ASSIGN(arena_, memory::Arena::reserve(std::max(bytes, options_.most_bytes)));
  TRI_TRY(arena_.resize(bytes));
  seed_ = seed;
  for (const memory::Kind kind : memory::kKinds)
    if (parameters_->by_kind()[kind] > 0) bind(0, parameters_->by_kind()[kind], kind);
  measured_peak_ = std::max(measured_peak_, parameters_->bytes());
  bind(now_.data_offset, options_.batch_buffers * now_.batch_bytes, memory::Kind::kData);
  parameters_->bind(arena_.data());
  std::vector<float> values, room;
  for (size_t p = 0; p < parameters_->size(); ++p) {
    parameters_->clear(p);
    for (size_t i = 0; i < parameters_->pieces(p); ++i) {
      const Parameters::Piece piece = parameters_->piece(p, i);
      values.resize(piece.count);
      nn::draw_initial(*model_, p, seed, values, piece.first);
      parameters_->set_piece(p, i, values, room);
    }
  }
  hypers_.assign(parameters_->size(), optim::Hyper{});
  coefficients_.resize(parameters_->size());
  scales_.assign(static_cast<size_t>(model_->layers), LayerScales{});
  reserve_rooms();
  return {};
}

// All that a step fills, so that none allocates.
void Engine::reserve_rooms() {
  report_.gradients.resize(parameters_->size());
  report_.saved.resize(std::max(train_graph_.tensors.size(), eval_graph_.tensors.size()));
  report_.passed.resize(report_.saved.size());
  report_.lost.resize(static_cast<size_t>(model_->layers) + 1);
  size_t most = 1;
  for (const LoweredOp& op : train_graph_.ops) most = std::max(most, op.inputs.size() + 1);
  // Exact clipping runs a step's ticks twice.
  tick_ns_.reserve(std::max(
      {2 * now_.train.ticks.size(), now_.eval.ticks.size(), 2 * now_.curvature.ticks.size()}));
  if (forecast().curvature_samples > 0) prepare_curvature();
  sources_.reserve(most);
  sinks_.reserve(most);
}

Result<Forecast> Engine::price(const StepSpec& spec) const {
  TRI_TRY(check_spec(spec));
  return lay_out(spec).forecast;
}

Result<void> Engine::replan(const StepSpec& spec) {
  TRI_TRY(check_spec(spec));
  if (spec == now_.train.spec) return {};
  Layout next = lay_out(spec);
  TRI_TRY(arena_.resize(next.forecast.engine_peak_bytes));
  ledger_.unbind(memory::Kind::kData, options_.batch_buffers * now_.batch_bytes);
  now_ = std::move(next);
  bind(now_.data_offset, options_.batch_buffers * now_.batch_bytes, memory::Kind::kData);
  last_ = nullptr;
  reserve_rooms();
  return {};
}

BatchRoom Engine::batch(size_t buffer) {
  TRI_CHECK(buffer < options_.batch_buffers, "buffer {}", buffer);
  const auto samples = static_cast<size_t>(spec().samples);
  const BatchLayout layout(model_->input_shape(), spec().samples);
  std::byte* first = arena_.data() + now_.data_offset + buffer * now_.batch_bytes;
  return {{reinterpret_cast<float*>(first + layout.x),
           samples * static_cast<size_t>(model_->input_shape().elements())},
          {reinterpret_cast<int32_t*>(first + layout.labels), samples},
          {reinterpret_cast<uint64_t*>(first + layout.ids), samples}};
}

void Engine::bind(size_t offset, size_t bytes, memory::Kind kind) {
  ledger_.bind(kind, bytes);
  measured_peak_ = std::max(measured_peak_, offset + bytes);
}

const StepReport& Engine::train(size_t buffer, const StepOrder& order, base::ThreadPool& pool) {
  TRI_CHECK(order.micro >= 0 && order.micro < spec().micros, "micro-batch {} of {}", order.micro,
            spec().micros);
  TRI_CHECK(order.lost < order.step, "{} of {} steps lost", order.lost, order.step);
  const double inverse_scale = 1.0 / double{order.loss_scale};
  for (size_t p = 0; p < hypers_.size(); ++p) {
    optim::Hyper hyper = hypers_[p];
    hyper.step = static_cast<int64_t>(order.step - order.lost);
    hyper.grad_scale *= inverse_scale;
    coefficients_[p] = optim::coefficients(spec().rule, hyper);
  }
  if (order.micro == 0) report_.clear();
  StepRun context = context_of(now_.train);
  context.step = order.step;
  context.micro = order.micro;
  context.grad_scale = order.loss_scale / static_cast<float>(spec().batch());
  context.inverse_scale = static_cast<float>(inverse_scale);
  phases_ = {};
  tick_ns_.clear();
  const bool twice =
      spec().clip == Clip::kExact && spec().mode == StepMode::kFused && spec().micros == 1;
  if (twice) {
    context.part = Pass::kMeasure;
    run(context, buffer, pool);
    clip_exactly(context);
    context.part = Pass::kApply;
  }
  run(context, buffer, pool);
  if (order.micro + 1 == spec().micros)
    for (optim::GradStats& stats : report_.gradients) stats.scale(inverse_scale);
  return report_;
}

const StepReport& Engine::evaluate(size_t buffer, int64_t count, base::ThreadPool& pool) {
  TRI_CHECK(count >= 1 && count <= forecast().eval_samples, "count {}", count);
  report_.clear();
  StepRun context = context_of(now_.eval);
  context.counted = count;
  phases_ = {};
  tick_ns_.clear();
  run(context, buffer, pool);
  return report_;
}

StepRun Engine::context_of(const StepPlan& plan) {
  StepRun context;
  context.plan = &plan;
  context.parameters = parameters_.get();
  context.region = arena_.data() + now_.step_offset;
  context.seed = seed_;
  context.coefficients = coefficients_.data();
  context.hypers = hypers_.data();
  context.scales = scales_.data();
  context.report = &report_;
  context.sources = &sources_;
  context.sinks = &sinks_;
  context.curvature = &measuring_;
  return context;
}

void Engine::run(StepRun& context, size_t buffer, base::ThreadPool& pool) {
  const StepPlan& plan = *context.plan;
  TRI_CHECK(pool.threads() <= plan.spec.threads, "planned for {} threads", plan.spec.threads);
  const BatchRoom room = batch(buffer);
  context.pool = &pool;
  context.batch = {room.x.data(), room.labels.data(), room.samples.data()};
  std::array<int64_t, 3> spent{};
  int64_t before = base::now_ns();
  for (context.tick = 0; context.tick < plan.ticks.size(); ++context.tick) {
    const Tick& tick = plan.ticks[context.tick];
    for (const int b : tick.begins) {
      const Buffer& made = plan.buffers[static_cast<size_t>(b)];
      bind(now_.step_offset + made.at(context.tick).offset, made.bytes, made.kind);
    }
    if (tick.phase == Phase::kForward || !context.wasted()) tick.run(context);
    for (const int b : tick.ends) {
      const Buffer& done = plan.buffers[static_cast<size_t>(b)];
      ledger_.unbind(done.kind, done.bytes);
    }
    const int64_t after = base::now_ns();
    spent[static_cast<size_t>(tick.phase)] += after - before;
    tick_ns_.push_back(after - before);
    before = after;
  }
  phases_.forward += 1e-9 * static_cast<double>(spent[0]);
  phases_.backward += 1e-9 * static_cast<double>(spent[1]);
  phases_.update += 1e-9 * static_cast<double>(spent[2]);
  last_ = &plan;
}

void Engine::logits(std::span<float> out) const {
  TRI_CHECK(last_ != nullptr);
  StepRun context;
  context.plan = last_;
  context.region = const_cast<std::byte*>(arena_.data()) + now_.step_offset;
  context.scales = scales_.data();
  context.parameters = parameters_.get();
  const int64_t classes = model_->classes();
  const int64_t samples = static_cast<int64_t>(out.size()) / classes;
  TRI_CHECK(samples <= last_->spec.samples &&
            samples * classes == static_cast<int64_t>(out.size()));
  const ops::Source source = context.source(last_->graph->logits);
  for (int64_t n = 0; n < samples; ++n)
    ops::load_rows(source, {n, 0, 1, 0, classes}, out.data() + n * classes, classes);
}

void Engine::gradient(size_t parameter, std::span<float> out) const {
  const StepPlan& train = now_.train;
  TRI_CHECK(!train.spec.update && train.gradients[parameter] >= 0);
  const ParameterSlot& slot = parameters_->slot(parameter);
  const Buffer& kept = train.buffers[static_cast<size_t>(train.gradients[parameter])];
  const int layer = model_->nodes[static_cast<size_t>(slot.node)].layer;
  std::vector<float> stored(slot.count);
  simd::decode(slot.dense ? train.formats(layer).gp : Format::kF32,
               arena_.data() + now_.step_offset + kept.lives.front().offset, stored.data(),
               stored.size());
  if (slot.dense)
    ops::unpack_weights(slot.geometry, stored.data(), out.data());
  else
    std::copy_n(stored.begin(), out.size(), out.begin());
}

}  // namespace tri::exec
