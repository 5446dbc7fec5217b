// What becomes of the gradients of parameters: StepBuilder's part that keeps or spends them.
#include <algorithm>

#include "exec/step_builder.h"
#include "exec/weights_tick.h"

namespace tri::exec {

using memory::End;
using memory::Kind;

// Gradients that outlive their layer: until the update after the step, or, as sums, until the next
// micro-batch.
int StepBuilder::keep_gradient(int parameter, Format format, int layer) {
  const auto p = static_cast<size_t>(parameter);
  plan_.gradients[p] = add_buffer(parameters_.model().parameters[p].name + "/gradient",
                                  parameters_.slot(p).count * numeric::storage_bytes(format),
                                  Kind::kGradients, End::kSaved, layer);
  touch(plan_.gradients[p]);
  if (accumulates()) hold(plan_.gradients[p]);
  return plan_.gradients[p];
}

void StepBuilder::weights_backward(size_t index) {
  const LoweredOp& op = graph_.ops[index];
  const nn::Node& node = *node_of(op);
  const ops::Needs& needs = operation(index)->needs();
  const auto weight = static_cast<size_t>(node.weight);
  const size_t count = parameters_.slot(weight).count;
  WeightsTick tick;
  tick.op = index;
  tick.weight = weight;
  tick.layer = node.layer;
  tick.gp = plan_.formats(node.layer).gp;
  tick.fused = fused();
  // Norms are taken of a whole gradient; and where it lies somewhere whole anyway it is looked at
  // before it is spent, see Note [Lost updates].
  tick.whole = fused() && (optim::needs_norms(plan_.spec.rule) || plan_.spec.clip == Clip::kLayer ||
                           accumulates() || !needs.bounded_gradient);
  tick.kept_format = accumulates() ? plan_.spec.accumulate : tick.gp;
  if (keeps_gradients()) keep_gradient(node.weight, tick.kept_format, node.layer);
  tick.bias = node.bias;
  if (node.bias >= 0) {
    tick.bias_grad =
        keeps_gradients()
            ? keep_gradient(node.bias, Format::kF32, node.layer)
            : add_buffer(
                  parameters_.model().parameters[static_cast<size_t>(node.bias)].name + "/gradient",
                  parameters_.slot(static_cast<size_t>(node.bias)).count * sizeof(float),
                  Kind::kScratch, End::kTransient, node.layer);
    touch(tick.bias_grad);
  }
  for (const int input : op.inputs) touch_value(input);
  touch_grad(op.output);
  tick.joined = joined_;
  tick.joined_norm = joined_norm_;
  for (const auto& [t, accumulate] : joined_) touch(slots(t).grad);
  // The sums of a layer that is packed in several chunks, or that go on from a micro-batch before;
  // kept gradients in fp32 serve as well.
  const bool kept_serves = keeps_gradients() && tick.kept_format == Format::kF32;
  if ((needs.whole_gradient || tick.whole || accumulates()) && !kept_serves)
    tick.partial = scratch(count * sizeof(float), node.layer);
  if (fused() && !tick.whole)
    tick.stats = scratch(needs.gradient_parts * sizeof(optim::GradStats), node.layer);
  tick.memory = scratch(std::max(needs.weights_scratch,
                                 tick.whole ? update_scratch_bytes(count, plan_.spec.threads) : 0),
                        node.layer);
  add_tick(op.name + " weights", Phase::kBackward, [tick](StepRun& run) { tick.run(run); });
  if (node.bias >= 0) step_vectors(-1, node.bias, node.name, {}, tick.bias_grad);
}

// Biases and norm parameters step by a gradient that lies in `buffer`: a bias at its start, gamma
// and beta as NormGrads has them. Where gradients are kept, `gradients` copies them there.
void StepBuilder::step_vectors(int weight, int bias, const std::string& name, const Run& gradients,
                               int buffer) {
  if (gradients) {
    for (const int parameter : {weight, bias})
      touch(plan_.gradients[static_cast<size_t>(parameter)]);
    touch(buffer);
    add_tick(name + " gradients", Phase::kBackward, gradients);
  }
  if (!fused()) return;
  touch(buffer);
  int norm = -1;
  for (size_t n = 0; n < plan_.norms.size(); ++n)
    if (plan_.norms[n].grads == buffer) norm = static_cast<int>(n);
  size_t count = 0;
  for (const int parameter : {weight, bias})
    if (parameter >= 0)
      count = std::max(count, parameters_.slot(static_cast<size_t>(parameter)).count);
  const int memory = scratch(update_scratch_bytes(count, plan_.spec.threads), -1);
  add_tick(name + " update", Phase::kUpdate, [weight, bias, buffer, norm, memory](StepRun& run) {
    const float* weight_grad = norm >= 0 ? run.norm_grads(norm).gamma : nullptr;
    const float* bias_grad = norm >= 0 ? run.norm_grads(norm).beta : run.floats(buffer);
    if (weight >= 0 && run.last_micro()) {
      run.check_vector(static_cast<size_t>(weight), weight_grad);
      run.check_vector(static_cast<size_t>(bias), bias_grad);
    }
    if (weight >= 0)
      update_parameter(run, static_cast<size_t>(weight), weight_grad, Format::kF32, run.at(memory));
    update_parameter(run, static_cast<size_t>(bias), bias_grad, Format::kF32, run.at(memory));
  });
}

void StepBuilder::update_after() {
  if (!plan_.spec.update) {
    for (const int buffer : plan_.gradients) touch(buffer);
    touch_value(graph_.logits);
    add_tick("kept", Phase::kUpdate, [](StepRun&) {});
    return;
  }
  const auto kept_format = [this](size_t p) {
    const ParameterSlot& slot = parameters_.slot(p);
    if (!slot.dense) return Format::kF32;
    if (accumulates()) return plan_.spec.accumulate;
    return plan_.formats(graph_.model->nodes[static_cast<size_t>(slot.node)].layer).gp;
  };
  // Calls use(parameter, its format, scratch) in a tick for every kept gradient.
  const auto for_each_kept = [&](const char* what, auto use) {
    for (size_t p = 0; p < parameters_.size(); ++p) {
      if (plan_.gradients[p] < 0) continue;
      touch(plan_.gradients[p]);
      const int memory =
          scratch(update_scratch_bytes(parameters_.slot(p).count, plan_.spec.threads), -1);
      add_tick(parameters_.model().parameters[p].name + what, Phase::kUpdate,
               [p, use, memory, format = kept_format(p)](StepRun& run) {
                 use(run, p, format, run.at(memory));
               });
    }
  };
  if (plan_.spec.clip == Clip::kExact) {
    for_each_kept(" norm", [](StepRun& run, size_t p, Format format, std::byte* memory) {
      if (!run.updates(run.layer_of(p))) return;
      run.report->gradients[p] =
          whole_stats(run, p, run.at(run.plan->gradients[p]), format, memory);
    });
    add_tick("clip", Phase::kUpdate, [](StepRun& run) {
      if (run.last_micro()) clip_exactly(run);
    });
  }
  for_each_kept(" update", [](StepRun& run, size_t p, Format format, std::byte* memory) {
    update_parameter(run, p, run.at(run.plan->gradients[p]), format, memory);
  });
}

}  // namespace tri::exec
