#include <algorithm>
#include <cstring>

#include "exec/step_builder.h"
#include "ops/channel_scale/channel_scale.h"
#include "ops/global_avg_pool/global_pool.h"
#include "ops/rows/row_tiles.h"

namespace tri::exec {

using memory::End;
using memory::Kind;
using ops::OpKind;

void StepBuilder::backward() {
  wants_grad_.assign(graph_.tensors.size(), false);
  for (const LoweredOp& op : graph_.ops) {
    const nn::Node* node = node_of(op);
    bool wants = (node != nullptr && node->weight >= 0) || tensor(op.output).norm >= 0;
    for (const int input : op.inputs) wants = wants || wants_grad(input);
    wants_grad_[static_cast<size_t>(op.output)] = wants;
  }
  first_reader_.assign(graph_.tensors.size(), graph_.ops.size());
  for (size_t index = graph_.ops.size(); index-- > 0;)
    for (const int input : graph_.ops[index].inputs)
      first_reader_[static_cast<size_t>(input)] = index;
  auto segment = plan_.spec.recompute.rbegin();
  for (size_t index = graph_.ops.size(); index-- > 0;) {
    op_ = static_cast<int>(index);
    if (segment != plan_.spec.recompute.rend() && segment->last == op_) make_again(*segment++);
    if (!wants_grad(graph_.ops[index].output)) continue;
    make_light_of(index);
    backward_op(index);
  }
  op_ = -1;
  if (plan_.spec.measures())
    measure_report();
  else if (!fused())
    update_after();
}

// dX from the old weights, then dW and its update, then what normalises the output, which both
// passes have used.
void StepBuilder::backward_op(size_t index) {
  const LoweredOp& op = graph_.ops[index];
  const int norm = tensor(op.output).norm;
  if (plan_.spec.measures())
    measure_op(index);
  else if (norm >= 0)
    norm_backward(norm);
  if (op.kind == OpKind::kAdd)
    add_backward(index);
  else if (op.kind == OpKind::kChannelScale)
    scale_backward(index);
  else if (op.kind == OpKind::kGlobalAvgPool && slots(op.inputs[0]).grad_factor >= 0)
    pool_backward(index);
  else
    data_backward(index);
  if (plan_.spec.measures()) return;
  if (const nn::Node* node = node_of(op); node != nullptr && node->weight >= 0)
    weights_backward(index);
  if (norm < 0) return;
  step_norm(norm);
}

// Batch norm's backward replaces GY by dz where every pass would pay for the activation again, but
// for gradients that stay under a factor.
bool StepBuilder::rewrites_grad(int t) const {
  const LoweredTensor& value = tensor(t);
  return value.norm >= 0 && ops::costly_slope(value.activation);
}

bool StepBuilder::open_grad(int t) {
  TensorSlots& made = slots(t);
  const bool there = made.grad >= 0;
  if (!there)
    made.grad = add_buffer(tensor(t).name + "/gradient",
                           static_cast<size_t>(plan_.spec.samples * tensor(t).shape.elements()) *
                               numeric::storage_bytes(made.gy),
                           Kind::kActivations, End::kTransient, tensor(t).layer);
  touch(made.grad);
  return there;
}

namespace {
// From sums that were made under a factor, or by who wrote the gradient, or here.
void norm_grads(StepRun& run, int norm, int t) {
  const NormSlots& slots = run.plan->norms[static_cast<size_t>(norm)];
  const TensorSlots& value = run.plan->tensors[static_cast<size_t>(t)];
  const ops::NormBatch batch = run.norm_batch(norm);
  const ops::NormParams params = run.norm_params(norm);
  const ops::NormGrads grads = run.norm_grads(norm);
  if (value.factored_sums >= 0) {
    const float* factor = run.floats(run.plan->factors[static_cast<size_t>(value.grad_factor)]);
    ops::norm_join_grads(*slots.plan, batch, params, grads,
                         {run.floats(value.factored_sums), factor, run.floats(value.grad_addend)},
                         *run.pool);
  } else if (slots.grad_watched) {
    ops::norm_join_grads(*slots.plan, batch, params, grads, run.at(slots.grad_sums), *run.pool);
  } else {
    run.note_passed(t,
                    ops::norm_backward(*slots.plan, run.grad_source(t, true), batch, params, grads,
                                       slots.rewrites, run.at(slots.grad_sums), *run.pool));
  }
}
}  // namespace

void StepBuilder::norm_backward(int norm) {
  const int t = graph_.norms[static_cast<size_t>(norm)].tensor;
  NormSlots& made = plan_.norms[static_cast<size_t>(norm)];
  const auto each = static_cast<size_t>(made.plan->ghosts * made.plan->channels);
  const auto padded = static_cast<size_t>((made.plan->channels + 31) / 32 * 32);
  made.grads = add_buffer(tensor(t).name + "/norm gradient", (3 * each + 2 * padded) * 4,
                          Kind::kActivations, End::kTransient, tensor(t).layer);
  const bool factored = slots(t).factored_sums >= 0;
  made.rewrites = rewrites_grad(t) && !factored;
  touch(made.grads);
  touch_grad(t);
  if (slots(t).grad_factor >= 0) touch_factor(t);
  if (factored)
    touch(slots(t).factored_sums);
  else if (made.grad_watched)
    touch(made.grad_sums);
  else
    made.grad_sums = norm_scratch(norm);
  const nn::Node& node =
      graph_.model->nodes[static_cast<size_t>(graph_.norms[static_cast<size_t>(norm)].node)];
  if (keeps_gradients())
    for (const int parameter : {node.weight, node.bias}) keep_gradient(parameter, Format::kF32, -1);
  add_tick(node.name + " backward", Phase::kBackward,
           [norm, t, weight = node.weight, bias = node.bias](StepRun& run) {
             const ops::NormGrads grads = run.norm_grads(norm);
             const auto open = [&run](int parameter, float* sums) {
               const auto p = static_cast<size_t>(parameter);
               const size_t count = run.parameters->slot(p).count;
               if (run.first_micro())
                 std::fill_n(sums, count, 0.0f);
               else
                 std::copy_n(run.floats(run.plan->gradients[p]), count, sums);
             };
             open(weight, grads.gamma);
             open(bias, grads.beta);
             norm_grads(run, norm, t);
           });
}

// Note [Shared gradients]. A sum hands its gradient on unchanged, so its inputs may use its buffer
// as theirs: nobody copies a residual's gradient. Backward runs from the last op to the first: op p
// reads its output's gradient at time -p, op c adds to its inputs' at -c. So two inputs may share
// if the first op that still writes to one lies before the producer of the other.
bool StepBuilder::may_alias(size_t add, int input, const std::vector<int>& aliased) const {
  const TensorSlots& mine = plan_.tensors[static_cast<size_t>(input)];
  const TensorSlots& sum = plan_.tensors[static_cast<size_t>(graph_.ops[add].output)];
  if (mine.grad >= 0 || mine.gy != sum.gy) return false;
  const auto next_writer = [&](int t) {
    const int producer = tensor(t).producer;
    for (int c = static_cast<int>(add) - 1; c > producer; --c) {
      const auto& inputs = graph_.ops[static_cast<size_t>(c)].inputs;
      if (std::ranges::find(inputs, t) != inputs.end()) return c;
    }
    const OpKind kind = graph_.ops[static_cast<size_t>(producer)].kind;
    const bool in_place = kind == OpKind::kAdd || kind == OpKind::kChannelScale || rewrites_grad(t);
    return in_place ? producer : -1;
  };
  return std::ranges::all_of(aliased, [&](int other) {
    return next_writer(input) < tensor(other).producer &&
           next_writer(other) < tensor(input).producer;
  });
}

void StepBuilder::add_backward(size_t index) {
  const LoweredOp& op = graph_.ops[index];
  const LoweredTensor& sum = tensor(op.output);
  std::vector<int> aliased;
  std::vector<std::pair<int, bool>> explicit_sinks;  // (tensor, accumulate)
  for (const int input : op.inputs) {
    if (!wants_grad(input)) continue;
    if (may_alias(index, input, aliased)) {
      slots(input).grad = slots(op.output).grad;
      aliased.push_back(input);
    } else {
      const bool there = open_grad(input);
      explicit_sinks.emplace_back(input, there);
    }
  }
  const bool transformed =
      sum.activation != ops::Activation::kNone || sum.norm >= 0 || sum.depth >= 0;
  const bool in_place = transformed && !aliased.empty();
  if (!in_place && explicit_sinks.empty()) return;
  touch_grad(op.output);
  const int memory = scratch(operation(index)->needs().backward_scratch, sum.layer);
  add_tick(op.name + " backward", Phase::kBackward,
           [index, in_place, explicit_sinks, memory](StepRun& run) {
             const int output = run.graph().ops[index].output;
             ops::PassArguments pass;
             pass.pool = run.pool;
             pass.scratch = run.at(memory);
             pass.output_grad = run.grad_source(output);
             run.sinks->clear();
             if (in_place) run.sinks->push_back(run.grad_sink(output, false));
             for (const auto& [t, accumulate] : explicit_sinks)
               run.sinks->push_back(run.grad_sink(t, accumulate));
             ops::StoreCounts lost[2];
             pass.input_grads = *run.sinks;
             pass.lost = lost;
             run.plan->operations[index]->backward_data(pass);
             size_t i = 0;
             if (in_place) run.note_passed(output, lost[i++]);
             for (const auto& [t, accumulate] : explicit_sinks) run.note_passed(t, lost[i++]);
           });
}

// Note [Gradients under a factor]. Squeeze-excite reads x twice: its mean, from which a few layers
// make the factor f, and x * f. So the gradient of x is that of the product times f, plus that of
// the mean at every pixel. A norm that is to rewrite GY anyway (rewrites_grad) reads the product's
// gradient under the factor and adds the mean's to it: one pass instead of one for each. On larger
// maps it needs no pass at all. What it sums is linear in f and in the mean's gradient, so the pass
// that makes the gradient of f sums all else (ops::FactoredSums), and the operation before the norm
// reads the product's gradient as it lies.
constexpr int64_t kFactoredPixels = 64;  // below, four sums per channel cost more than a pass

bool StepBuilder::reads_under_factor(size_t scale) const {
  const int x = graph_.ops[scale].inputs[0];
  if (plan_.spec.measures() || !rewrites_grad(x) || tensor(x).depth >= 0) return false;
  if (graph_.ops[scale].inputs[1] == x) return false;  // x is its own factor
  const size_t first = first_reader_[static_cast<size_t>(x)];
  if (graph_.ops[first].kind != OpKind::kGlobalAvgPool) return false;
  for (size_t op = 0; op < graph_.ops.size(); ++op) {
    const bool reads = std::ranges::count(graph_.ops[op].inputs, x) > 0;
    if (reads && op != first && op != scale) return false;
  }
  return true;
}

// The mean's gradient, for who reads that of x to add.
void StepBuilder::pool_backward(size_t index) {
  const LoweredOp& op = graph_.ops[index];
  const int x = op.inputs[0];
  const Shape& shape = tensor(x).shape;
  slots(x).grad_addend = add_buffer(tensor(x).name + "/gradient of the mean",
                                    static_cast<size_t>(plan_.spec.samples * shape.c) * 4,
                                    Kind::kActivations, End::kTransient, tensor(x).layer);
  touch(slots(x).grad_addend);
  touch_grad(op.output);
  add_tick(op.name + " backward", Phase::kBackward, [index, x](StepRun& run) {
    const TensorSlots& made = run.plan->tensors[static_cast<size_t>(x)];
    ops::global_pool_addend(run.graph().tensors[static_cast<size_t>(x)].shape,
                            run.plan->spec.samples, run.grad_source(run.graph().ops[index].output),
                            run.floats(made.grad_addend), *run.pool);
  });
}

void StepBuilder::scale_backward(size_t index) {
  const LoweredOp& op = graph_.ops[index];
  const int x = op.inputs[0], f = op.inputs[1];
  // The product's gradient becomes that of its input, in place if nobody was there before.
  const bool in_place = slots(x).grad < 0 && slots(x).gy == slots(op.output).gy;
  if (in_place) slots(x).grad = slots(op.output).grad;
  const bool later = in_place && reads_under_factor(index);
  const bool accumulate_x = in_place ? false : open_grad(x);
  const bool accumulate_f = open_grad(f);
  touch(slots(x).grad);
  touch_grad(op.output);
  touch_value(op.output);
  if (later) slots(x).grad_factor = tensor(op.output).factor;
  if (later && tensor(x).shape.pixels() >= kFactoredPixels) return scale_sums(index, accumulate_f);
  const ops::RowTiles tiles(plan_.spec.samples, tensor(op.output).shape);
  const int memory =
      scratch(plan_.spec.threads * ops::channel_scale_worker_bytes(tiles), tensor(x).layer);
  add_tick(op.name + " backward", Phase::kBackward,
           [index, x, f, tiles, later, accumulate_x, accumulate_f, memory](StepRun& run) {
             const LoweredTensor& out =
                 run.graph().tensors[static_cast<size_t>(run.graph().ops[index].output)];
             const ops::ChannelScaleCounts lost = ops::channel_scale_backward(
                 tiles, run.grad_source(run.graph().ops[index].output), run.source(x),
                 run.floats(run.plan->factors[static_cast<size_t>(out.factor)]),
                 later ? ops::Sink{} : run.grad_sink(x, accumulate_x),
                 run.grad_sink(f, accumulate_f), run.at(memory), *run.pool);
             run.note_passed(x, lost.input);
             run.note_passed(f, lost.factor);
           });
}

// The gradient of the factor alone, and the norm's sums.
void StepBuilder::scale_sums(size_t index, bool accumulate) {
  const LoweredOp& op = graph_.ops[index];
  const int x = op.inputs[0], f = op.inputs[1];
  const int64_t channels = tensor(x).shape.c;
  slots(x).factored_sums =
      add_buffer(tensor(x).name + "/sums under the factor",
                 static_cast<size_t>(plan_.spec.samples * ops::kFactoredSums * channels) * 4,
                 Kind::kActivations, End::kTransient, tensor(x).layer);
  touch(slots(x).factored_sums);
  const int memory = scratch(plan_.spec.threads * ops::channel_scale_sums_worker_bytes(
                                                      channels, slots(x).y, slots(op.output).gy),
                             tensor(x).layer);
  add_tick(op.name + " backward", Phase::kBackward,
           [index, x, f, accumulate, memory](StepRun& run) {
             const TensorSlots& made = run.plan->tensors[static_cast<size_t>(x)];
             const int norm = run.graph().tensors[static_cast<size_t>(x)].norm;
             run.note_passed(
                 f, ops::channel_scale_sums(
                        run.plan->spec.samples, run.grad_source(run.graph().ops[index].output).grad,
                        run.source(x), run.norm_batch(norm).mean, run.grad_sink(f, accumulate),
                        run.floats(made.factored_sums), run.at(memory), *run.pool));
           });
}

int StepBuilder::watched_norm(size_t op, const std::pair<int, bool>& sink) {
  const auto& [t, accumulate] = sink;
  const int norm = t < 0 ? -1 : tensor(t).norm;
  if (norm < 0 || plan_.spec.measures() || !operation(op)->needs().tells_data ||
      first_reader_[static_cast<size_t>(t)] != op)
    return -1;
  NormSlots& made = plan_.norms[static_cast<size_t>(norm)];
  made.grad_watched = true;
  made.grad_passed = operation(op)->needs().passes_data && !accumulate;
  made.grad_sums = norm_scratch(norm);
  touch_value(t);
  return norm;
}

void StepBuilder::data_backward(size_t index) {
  const LoweredOp& op = graph_.ops[index];
  bool wanted = false;
  joined_.clear();
  joined_norm_ = -1;
  for (const int input : op.inputs) wanted = wanted || wants_grad(input);
  if (!wanted) return;
  std::vector<std::pair<int, bool>> sinks;  // (tensor or -1, accumulate)
  std::vector<int> cleared;                 // buffers of which this op writes only a part
  for (const int input : op.inputs) {
    if (!wants_grad(input)) {
      sinks.emplace_back(-1, false);
      continue;
    }
    const bool there = open_grad(input);
    const bool partial = op.kind == OpKind::kSplit;
    if (partial && !there) cleared.push_back(slots(input).grad);
    sinks.emplace_back(input, there || partial);
  }
  if (operation(index)->needs().data_with_weights && !plan_.spec.measures()) {
    joined_ = sinks;  // weights_backward() does both
    joined_norm_ = watched_norm(index, sinks[0]);
    return;
  }
  touch_grad(op.output);
  touch(plan_.saved[index]);
  const int memory = scratch(operation(index)->needs().backward_scratch, tensor(op.output).layer);
  const int norm = watched_norm(index, sinks[0]);
  add_tick(op.name + " backward", Phase::kBackward,
           [index, sinks, cleared, memory, norm](StepRun& run) {
             const LoweredOp& lowered = run.graph().ops[index];
             for (const int buffer : cleared)
               std::memset(run.at(buffer), 0, run.plan->buffers[static_cast<size_t>(buffer)].bytes);
             ops::PassArguments pass;
             pass.pool = run.pool;
             pass.scratch = memory_of(run, memory);
             pass.saved = memory_of(run, run.plan->saved[index]);
             pass.output_grad = run.grad_source(lowered.output);
             pass.seed = run.seed;
             pass.samples = run.batch.samples;
             if (lowered.node >= 0) {
               const nn::Node& node = run.graph().model->nodes[static_cast<size_t>(lowered.node)];
               if (node.weight >= 0) pass.weights = run.weights(node);
             }
             // One input at a time, as every tensor has its own counts.
             run.sinks->assign(sinks.size(), {});
             pass.input_grads = *run.sinks;
             for (size_t i = 0; i < sinks.size(); ++i) {
               const auto& [t, accumulate] = sinks[i];
               if (t < 0) continue;
               ops::Sink& sink = (*run.sinks)[i];
               sink = run.grad_sink(t, accumulate);
               WatchedNorm watched(run, i == 0 ? norm : -1, &sink);
               run.note_passed(t, run.plan->operations[index]->backward_data(pass));
               sink = {};
             }
           });
}

}  // namespace tri::exec
