// What becomes of the gradients of parameters: StepBuilder's part that keeps or spends them.
#include <algorithm>
#include <cstring>

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
  if (node.bias >= 0) step_bias(node.bias, node.name, tick.bias_grad);
}

void StepBuilder::step_bias(int bias, const std::string& name, int buffer) {
  if (!fused()) return;
  touch(buffer);
  const auto parameter = static_cast<size_t>(bias);
  const int memory =
      scratch(update_scratch_bytes(parameters_.slot(parameter).count, plan_.spec.threads), -1);
  add_tick(name + " update", Phase::kUpdate, [parameter, buffer, memory](StepRun& run) {
    update_parameter(run, parameter, run.floats(buffer), Format::kF32, run.at(memory));
  });
}

void StepBuilder::step_norm(int norm) {
  const nn::Node& node =
      graph_.model->nodes[static_cast<size_t>(graph_.norms[static_cast<size_t>(norm)].node)];
  const auto gamma = static_cast<size_t>(node.weight), beta = static_cast<size_t>(node.bias);
  const int buffer = plan_.norms[static_cast<size_t>(norm)].grads;
  if (keeps_gradients()) {
    touch(plan_.gradients[gamma]);
    touch(plan_.gradients[beta]);
    touch(buffer);
    add_tick(node.name + " gradients", Phase::kBackward, [norm, gamma, beta](StepRun& run) {
      const auto keep = [&run](size_t parameter, const float* grad) {
        if (run.last_micro()) run.check_vector(parameter, grad);
        std::memcpy(run.at(run.plan->gradients[parameter]), grad,
                    run.parameters->slot(parameter).count * sizeof(float));
      };
      keep(gamma, run.norm_grads(norm).gamma);
      keep(beta, run.norm_grads(norm).beta);
    });
  }
  if (!fused()) return;
  touch(buffer);
  const int memory =
      scratch(update_scratch_bytes(parameters_.slot(gamma).count, plan_.spec.threads), -1);
  add_tick(node.name + " update", Phase::kUpdate, [norm, gamma, beta, memory](StepRun& run) {
    const ops::NormGrads grads = run.norm_grads(norm);
    if (run.last_micro()) {
      run.check_vector(gamma, grads.gamma);
      run.check_vector(beta, grads.beta);
    }
    update_parameter(run, gamma, grads.gamma, Format::kF32, run.at(memory));
    update_parameter(run, beta, grads.beta, Format::kF32, run.at(memory));
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
