#include "exec/step_plan.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/ceil_div.h"
#include "base/check.h"
#include "exec/step_builder.h"
#include "ops/stochastic_depth/stochastic_depth.h"

namespace tri::exec {

using memory::End;
using memory::Kind;
using ops::OpKind;

bool is_light(const LoweredOp& op) { return op.kind == OpKind::kAdd || op.kind == OpKind::kConcat; }

const LayerFormats& StepPlan::formats(int layer) const {
  static const LayerFormats kPlain;
  return layer < 0 || spec.formats.empty() ? kPlain : spec.formats[static_cast<size_t>(layer)];
}

StepBuilder::StepBuilder(const Lowered& graph, const Parameters& parameters, const StepSpec& spec)
    : graph_(graph), parameters_(parameters) {
  plan_.spec = spec;
  plan_.graph = &graph;
  plan_.tensors.resize(graph.tensors.size());
  plan_.norms.resize(graph.norms.size());
  plan_.saved.assign(graph.ops.size(), -1);
  plan_.gradients.assign(parameters.size(), -1);
  TRI_CHECK(spec.formats.empty() ||
            spec.formats.size() == static_cast<size_t>(graph.model->layers));
  TRI_CHECK(spec.kernels.empty() ||
            spec.kernels.size() == static_cast<size_t>(graph.model->layers));
  TRI_CHECK(spec.micros >= 1 && (spec.update || spec.micros == 1), "micros = {}", spec.micros);
}

StepPlan StepBuilder::build() && {
  make_operations();
  make_tensors();
  if (plan_.spec.curvature.estimator == Estimator::kHessian) hessian_vectors();
  forward();
  op_ = -1;
  if (plan_.spec.curvature.estimator == Estimator::kFisher) fisher_labels();
  loss();
  if (plan_.spec.training) {
    in_backward_ = true;
    for (size_t buffer = 0; buffer < dropped_.size(); ++buffer)
      if (dropped_[buffer]) drop(static_cast<int>(buffer));
    backward();
  }
  place();
  return std::move(plan_);
}

const nn::Node* StepBuilder::node_of(const LoweredOp& op) const {
  return op.node < 0 ? nullptr : &graph_.model->nodes[static_cast<size_t>(op.node)];
}

int StepBuilder::add_buffer(std::string name, size_t bytes, Kind kind, End end, int layer) {
  Buffer buffer;
  buffer.name = std::move(name);
  buffer.bytes = (bytes + 63) / 64 * 64;
  buffer.kind = kind;
  buffer.end = end;
  buffer.layer = layer;
  plan_.buffers.push_back(std::move(buffer));
  return static_cast<int>(plan_.buffers.size()) - 1;
}

void StepBuilder::touch(int buffer) {
  if (buffer < 0) return;
  Life& life = plan_.buffers[static_cast<size_t>(buffer)].lives.back();
  life.first = std::min(life.first, now());
  life.last = std::max(life.last, now());
}

void StepBuilder::touch_value(int t) {
  const LoweredTensor& value = tensor(t);
  if (value.scaled >= 0) {
    touch(plan_.factors[static_cast<size_t>(value.factor)]);
    touch_value(value.scaled);
    return;
  }
  TRI_CHECK(!in_backward_ || light_.empty() || !light_[static_cast<size_t>(t)], "{}", value.name);
  touch(slots(t).data);
  if (value.norm >= 0) touch(plan_.norms[static_cast<size_t>(value.norm)].batch);
  if (value.depth >= 0) touch(plan_.depths[static_cast<size_t>(value.depth)]);
  if (!plan_.gates.empty()) touch(plan_.gates[static_cast<size_t>(t)]);
}

void StepBuilder::touch_grad(int t) {
  const LoweredTensor& value = tensor(t);
  touch(slots(t).grad);
  if (value.scaled >= 0) return;
  if (value.norm >= 0) touch(plan_.norms[static_cast<size_t>(value.norm)].grads);
  if (value.norm >= 0 || value.activation != ops::Activation::kNone) touch_value(t);
  if (value.depth >= 0) touch(plan_.depths[static_cast<size_t>(value.depth)]);
  if (slots(t).factored_sums >= 0) touch_factor(t);
}

void StepBuilder::touch_factor(int t) {
  touch(plan_.factors[static_cast<size_t>(slots(t).grad_factor)]);
  touch(slots(t).grad_addend);
}

int StepBuilder::scratch(size_t bytes, int layer) {
  if (bytes == 0) return -1;
  const int buffer = add_buffer("scratch", bytes, Kind::kScratch, End::kTransient, layer);
  touch(buffer);
  return buffer;
}

void StepBuilder::add_tick(std::string name, Phase phase, Run run) {
  plan_.ticks.push_back({std::move(name), phase, std::move(run), {}, {}, op_});
}

void StepBuilder::make_operations() {
  const StepSpec& spec = plan_.spec;
  for (const LoweredOp& op : graph_.ops) {
    plan_.operations.emplace_back();
    if (op.kind == OpKind::kChannelScale) continue;
    ops::OperationSpec made;
    made.kind = op.kind;
    if (const nn::Node* node = node_of(op)) {
      made.attr = node->attr;
      if (node->weight >= 0 && !spec.kernels.empty())
        made.kernels = spec.kernels[static_cast<size_t>(node->layer)];
      // Curvature is the difference of large numbers: it is measured with products in fp32.
      if (node->weight >= 0 && !spec.measures()) made.working = plan_.formats(node->layer).p;
    }
    for (const int input : op.inputs) made.inputs.push_back(tensor(input).shape);
    made.activation = tensor(op.inputs[0]).activation;
    made.output = tensor(op.output).shape;
    made.samples = spec.samples;
    made.ghost = spec.ghost;
    made.threads = spec.threads;
    made.layer = static_cast<uint64_t>(std::max(0, op.node));
    plan_.operations.back() = ops::make_operation(made);
    plan_.macs += plan_.operations.back()->needs().macs;
  }
}

void StepBuilder::make_tensors() {
  const auto samples = static_cast<size_t>(plan_.spec.samples);
  for (size_t t = 1; t < graph_.tensors.size(); ++t) {
    const LoweredTensor& value = graph_.tensors[t];
    TensorSlots& made = plan_.tensors[t];
    const LayerFormats& formats = plan_.formats(value.layer);
    made.y = plan_.spec.training ? formats.y : Format::kF32;
    made.of_half = made.y != Format::kF32;
    made.gy = formats.gy;
    if (value.scaled >= 0) continue;
    const size_t bytes =
        samples * static_cast<size_t>(value.shape.elements()) * numeric::storage_bytes(made.y);
    made.data = add_buffer(value.name, bytes, Kind::kActivations, End::kSaved, value.layer);
  }
  for (size_t n = 0; n < graph_.norms.size(); ++n) {
    const LoweredTensor& value = tensor(graph_.norms[n].tensor);
    NormSlots& made = plan_.norms[n];
    made.plan = std::make_unique<ops::NormPlan>(plan_.spec.samples, value.shape.pixels(),
                                                value.shape.c, plan_.spec.ghost);
    const auto each = static_cast<size_t>(made.plan->ghosts * value.shape.c);
    const size_t floats = plan_.spec.frozen() ? 2 * static_cast<size_t>(value.shape.c) : 4 * each;
    made.batch = add_buffer(value.name + "/statistics", floats * sizeof(float), Kind::kActivations,
                            End::kSaved, value.layer);
  }
  for (const LoweredFactor& factor : graph_.factors)
    plan_.factors.push_back(add_buffer(
        tensor(factor.source).name + "/factor", samples * static_cast<size_t>(factor.channels) * 4,
        Kind::kActivations, End::kSaved, tensor(factor.source).layer));
  for (size_t d = 0; d < graph_.depths.size(); ++d)
    plan_.depths.push_back(
        add_buffer("stochastic depth", samples * 4, Kind::kActivations, End::kSaved, -1));
}

void StepBuilder::forward() {
  if (plan_.spec.training) drop_tensors();
  if (!graph_.depths.empty()) {
    for (const int buffer : plan_.depths) touch(buffer);
    add_tick("stochastic depth", Phase::kForward, [](StepRun& run) {
      const Lowered& graph = run.graph();
      for (size_t d = 0; d < graph.depths.size(); ++d)
        ops::stochastic_depth_factors(run.seed, static_cast<uint64_t>(graph.depths[d].node),
                                      graph.depths[d].rate, run.batch.samples,
                                      run.plan->spec.samples, run.floats(run.plan->depths[d]));
    });
  }
  for (size_t index = 0; index < graph_.ops.size(); ++index) {
    const LoweredOp& op = graph_.ops[index];
    op_ = static_cast<int>(index);
    if (op.kind == OpKind::kChannelScale)
      scale_factors(op);
    else
      forward_op(index);
    if (tensor(op.output).norm >= 0) norm_forward(tensor(op.output).norm);
    if (plan_.spec.curvature.estimator == Estimator::kHessian) hessian_gates(op.output);
  }
}

// Gives up what only the ops of a segment read.
void StepBuilder::drop_tensors() {
  dropped_.assign(plan_.buffers.size(), false);
  std::vector<int> last_reader(graph_.tensors.size(), -1);
  for (size_t index = 0; index < graph_.ops.size(); ++index)
    for (const int t : graph_.ops[index].inputs)
      last_reader[static_cast<size_t>(stored(t))] = static_cast<int>(index);
  for (const Segment& segment : plan_.spec.recompute)
    for (int index = segment.first; index <= segment.last; ++index) {
      const int t = graph_.ops[static_cast<size_t>(index)].output;
      if (slots(t).data >= 0 && t != graph_.logits &&
          last_reader[static_cast<size_t>(t)] <= segment.last)
        dropped_[static_cast<size_t>(slots(t).data)] = true;
    }
  if (!plan_.spec.drop_light) return;
  light_.assign(graph_.tensors.size(), false);
  for (size_t index = 0; index < graph_.ops.size(); ++index) {
    const LoweredOp& op = graph_.ops[index];
    const bool in_segment = std::ranges::any_of(plan_.spec.recompute, [&](const Segment& segment) {
      return segment.first <= static_cast<int>(index) && static_cast<int>(index) <= segment.last;
    });
    if (!is_light(op) || in_segment || op.output == graph_.logits) continue;
    light_[static_cast<size_t>(op.output)] = true;
    dropped_[static_cast<size_t>(slots(op.output).data)] = true;
  }
}

// Says whether it made the tensor, of others that are kept.
bool StepBuilder::make_light(int t) {
  t = stored(t);
  if (light_.empty() || !light_[static_cast<size_t>(t)]) return false;
  const auto producer = static_cast<size_t>(tensor(t).producer);
  std::vector<int> made;
  for (const int input : graph_.ops[producer].inputs)
    if (make_light(input)) made.push_back(stored(input));
  light_[static_cast<size_t>(t)] = false;
  forward_op(producer, true);
  for (const int input : made) {
    light_[static_cast<size_t>(input)] = true;
    drop(slots(input).data);
  }
  return made.empty();
}

// Before the ticks of an operation's way back: what weights or a factor met, and what stands before
// a norm or an activation. Others hand on gradients without looking at what they were made of.
void StepBuilder::make_light_of(size_t index) {
  const LoweredOp& op = graph_.ops[index];
  const nn::Node* node = node_of(op);
  const bool reads = (node != nullptr && node->weight >= 0) || op.kind == OpKind::kChannelScale;
  for (const int input : op.inputs)
    if (reads || tensor(input).norm >= 0) make_light(input);
  const LoweredTensor& output = tensor(op.output);
  if (output.norm >= 0 || output.activation != ops::Activation::kNone) make_light(op.output);
}

// Statistics, factors and masks were kept: they are small, and running statistics must not move
// twice.
void StepBuilder::make_again(const Segment& segment) {
  for (int index = segment.first; index <= segment.last; ++index) {
    const LoweredOp& op = graph_.ops[static_cast<size_t>(index)];
    const int data = slots(op.output).data;
    if (data < 0 || !dropped_[static_cast<size_t>(data)]) continue;
    for (const int input : op.inputs) make_light(input);
    forward_op(static_cast<size_t>(index), true);
  }
}

void StepBuilder::forward_op(size_t index, bool again) {
  const LoweredOp& op = graph_.ops[index];
  const ops::Needs& needs = operation(index)->needs();
  for (const int input : op.inputs) touch_value(input);
  touch(slots(op.output).data);
  if (needs.saved_bytes > 0 && !again)
    plan_.saved[index] = add_buffer(op.name + "/saved", needs.saved_bytes, Kind::kActivations,
                                    End::kSaved, tensor(op.output).layer);
  touch(plan_.saved[index]);
  const int memory = scratch(needs.forward_scratch, tensor(op.output).layer);
  const Phase phase = again ? Phase::kBackward : Phase::kForward;
  int norm = tensor(op.output).norm;
  if (again || plan_.spec.frozen() || !needs.tells_forward) norm = -1;
  if (norm >= 0) {
    NormSlots& made = plan_.norms[static_cast<size_t>(norm)];
    made.sums = norm_scratch(norm);
    made.watched = true;
  }
  add_tick(again ? op.name + " again" : op.name, phase, [index, again, memory, norm](StepRun& run) {
    const LoweredOp& lowered = run.graph().ops[index];
    run.sources->clear();
    for (const int input : lowered.inputs) run.sources->push_back(run.source(input));
    ops::PassArguments pass;
    pass.pool = run.pool;
    pass.scratch = memory_of(run, memory);
    pass.saved = memory_of(run, run.plan->saved[index]);
    pass.inputs = *run.sources;
    pass.output = run.data_sink(lowered.output);
    pass.again = run.moves_layer();
    pass.seed = run.seed;
    pass.samples = run.batch.samples;
    if (lowered.node >= 0) {
      const nn::Node& node = run.graph().model->nodes[static_cast<size_t>(lowered.node)];
      if (node.weight >= 0) pass.weights = run.weights(node);
      if (node.bias >= 0) pass.bias = run.vector(node.bias);
    }
    std::optional<ops::NormMoments> moments;
    if (norm >= 0 && run.plan->norms[static_cast<size_t>(norm)].watched) {
      const NormSlots& slots = run.plan->norms[static_cast<size_t>(norm)];
      moments.emplace(*slots.plan, run.source(lowered.output).stored, run.at(slots.sums));
      pass.output.watcher = &*moments;
    }
    const ops::StoreCounts lost = run.plan->operations[index]->forward(pass);
    if (!again && run.part != Pass::kApply)
      run.report->saved[static_cast<size_t>(lowered.output)] += lost;
  });
}

void StepBuilder::scale_factors(const LoweredOp& op) {
  const int factor = tensor(op.output).factor;
  touch_value(op.inputs[1]);
  touch(plan_.factors[static_cast<size_t>(factor)]);
  add_tick(op.name, Phase::kForward, [factor](StepRun& run) {
    const LoweredFactor& lowered = run.graph().factors[static_cast<size_t>(factor)];
    const ops::Source source = run.source(lowered.source);
    float* factors = run.floats(run.plan->factors[static_cast<size_t>(factor)]);
    constexpr int64_t kTogether = 16;  // samples, a row each
    const int64_t samples = run.plan->spec.samples;
    run.pool->run(static_cast<size_t>(base::ceil_div(samples, kTogether)),
                  [&](size_t tile, size_t) {
                    const int64_t first = static_cast<int64_t>(tile) * kTogether;
                    for (int64_t n = first; n < std::min(samples, first + kTogether); ++n)
                      ops::load_rows(source, {n, 0, 1, 0, lowered.channels},
                                     factors + n * lowered.channels, lowered.channels);
                  });
  });
}

int StepBuilder::norm_scratch(int norm) {
  return scratch(plan_.norms[static_cast<size_t>(norm)].plan->scratch_bytes(plan_.spec.threads),
                 tensor(graph_.norms[static_cast<size_t>(norm)].tensor).layer);
}

void StepBuilder::norm_forward(int norm) {
  const LoweredNorm& lowered = graph_.norms[static_cast<size_t>(norm)];
  NormSlots& made = plan_.norms[static_cast<size_t>(norm)];
  const std::string& name = graph_.model->nodes[static_cast<size_t>(lowered.node)].name;
  touch(made.batch);
  if (plan_.spec.frozen()) {
    add_tick(name, Phase::kForward, [norm](StepRun& run) {
      const int node = run.graph().norms[static_cast<size_t>(norm)].node;
      const ops::NormBatch batch = run.norm_batch(norm);
      ops::norm_frozen(run.plan->norms[static_cast<size_t>(norm)].plan->channels,
                       run.norm_params(norm), run.parameters->running_mean(node).data(),
                       run.parameters->running_variance(node).data(), batch.scale, batch.shift);
    });
    return;
  }
  touch(slots(lowered.tensor).data);
  if (made.watched)
    touch(made.sums);
  else
    made.sums = norm_scratch(norm);
  add_tick(name, Phase::kForward, [norm](StepRun& run) {
    const LoweredNorm& which = run.graph().norms[static_cast<size_t>(norm)];
    const nn::Node& node = run.graph().model->nodes[static_cast<size_t>(which.node)];
    ops::NormRunning running;
    if (run.part != Pass::kApply)
      running = {run.parameters->running_mean(which.node).data(),
                 run.parameters->running_variance(which.node).data(), node.attr.momentum};
    const NormSlots& slots = run.plan->norms[static_cast<size_t>(norm)];
    if (slots.watched)
      ops::norm_join(*slots.plan, run.norm_params(norm), run.norm_batch(norm), running,
                     run.at(slots.sums), *run.pool);
    else
      ops::norm_forward(*slots.plan, run.source(which.tensor).stored, run.norm_params(norm),
                        run.norm_batch(norm), running, run.at(slots.sums), *run.pool);
  });
}

void StepBuilder::loss() {
  const int logits = graph_.logits;
  const ops::LossPlan made{plan_.spec.samples, tensor(logits).shape.elements(),
                           plan_.spec.label_smoothing};
  touch_value(logits);
  if (plan_.spec.training) {
    slots(logits).grad = add_buffer(
        tensor(logits).name + "/gradient",
        static_cast<size_t>(made.samples * made.classes) * numeric::storage_bytes(slots(logits).gy),
        Kind::kActivations, End::kTransient, tensor(logits).layer);
    touch(slots(logits).grad);
  }
  const int memory = scratch(made.shared_bytes() + plan_.spec.threads * made.worker_bytes(), -1);
  add_tick("loss", Phase::kForward, [made, logits, memory](StepRun& run) {
    const ops::Sink grad = run.plan->spec.training ? run.grad_sink(logits, false) : ops::Sink{};
    ops::LossPlan counted = made;
    if (run.counted > 0) counted.samples = run.counted;
    const ops::LossSum loss =
        ops::softmax_cross_entropy(counted, run.source(logits), run.batch.labels, run.grad_scale,
                                   grad, run.at(memory), *run.pool);
    if (run.part != Pass::kApply) {
      run.report->loss.loss += loss.loss;
      run.report->loss.top1 += loss.top1;
      run.report->loss.top5 += loss.top5;
    }
    if (!std::isfinite(loss.loss)) run.report->skip(-1);
    run.note_passed(logits, loss.lost);
  });
}

void StepBuilder::place() {
  for (const int buffer : held_)
    plan_.buffers[static_cast<size_t>(buffer)].lives = {{0, plan_.ticks.size() - 1, 0}};
  memory::Planner planner;
  std::vector<Life*> lives;
  for (size_t i = 0; i < plan_.buffers.size(); ++i) {
    Buffer& b = plan_.buffers[i];
    if (b.dropped() && !b.lives.back().used()) b.lives.pop_back();  // for good
    for (Life& life : b.lives) {
      TRI_CHECK(life.used(), "buffer {} is never used", b.name);
      // What is dropped soon lies among the transients.
      const End end = &life == &b.lives.back() ? b.end : End::kTransient;
      planner.add({b.name, b.bytes, 64, static_cast<memory::Tick>(life.first),
                   static_cast<memory::Tick>(life.last), b.kind, end});
      lives.push_back(&life);
      plan_.ticks[life.first].begins.push_back(static_cast<int>(i));
      plan_.ticks[life.last].ends.push_back(static_cast<int>(i));
    }
  }
  const memory::Plan placed = planner.solve();
  plan_.arena_bytes = placed.arena_bytes;
  plan_.lower_bound = placed.lower_bound;
  for (size_t i = 0; i < lives.size(); ++i) lives[i]->offset = placed.offsets[i];
  memory::KindBytes alive;
  for (const Tick& tick : plan_.ticks) {
    for (const int b : tick.begins) {
      const Buffer& buffer = plan_.buffers[static_cast<size_t>(b)];
      alive[buffer.kind] += buffer.bytes;
      plan_.peak_by_kind[buffer.kind] =
          std::max(plan_.peak_by_kind[buffer.kind], alive[buffer.kind]);
    }
    for (const int b : tick.ends) {
      const Buffer& buffer = plan_.buffers[static_cast<size_t>(b)];
      alive[buffer.kind] -= buffer.bytes;
    }
  }
}

StepPlan plan_step(const Lowered& graph, const Parameters& parameters, const StepSpec& spec) {
  return StepBuilder(graph, parameters, spec).build();
}

}  // namespace tri::exec
