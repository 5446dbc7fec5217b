#include "exec/weights_tick.h"

#include <algorithm>
#include <cstring>

#include "simd/convert.h"

namespace tri::exec {
namespace {

class DropGradient final : public ops::GradConsumer {
 public:
  void consume(size_t, int64_t, int64_t, const float*) noexcept override {}
};

}  // namespace

void WeightsTick::run(StepRun& run) const {
  // Only this layer will not step: others may still want the gradient of the input.
  const bool wasted = run.report->first_bad >= 0 && run.loses(layer) && run.part == Pass::kWhole &&
                      run.plan->spec.update;
  if (wasted && joined.empty()) return;
  const LoweredOp& lowered = run.graph().ops[op];
  ops::Operation& operation = *run.plan->operations[op];
  run.sources->clear();
  for (const int input : lowered.inputs) run.sources->push_back(run.source(input));
  ops::PassArguments pass;
  pass.pool = run.pool;
  pass.scratch = memory < 0 ? nullptr : run.at(memory);
  pass.inputs = *run.sources;
  pass.output_grad = run.grad_source(lowered.output);
  if (!joined.empty()) {
    run.sinks->clear();
    for (const auto& [t, accumulate] : joined) run.sinks->push_back(run.grad_sink(t, accumulate));
    pass.input_grads = *run.sinks;
    pass.weights = run.parameters->weights(weight, run.plan->formats(layer).p);
  }
  if (bias_grad >= 0) {
    pass.bias_grad = run.floats(bias_grad);
    if (run.first_micro())
      std::memset(pass.bias_grad, 0, run.plan->buffers[static_cast<size_t>(bias_grad)].bytes);
  }
  const int kept = run.plan->gradients[weight];
  const int room = partial >= 0 ? partial : kept >= 0 ? kept : memory;
  pass.partial = room < 0 ? nullptr : run.floats(room);
  if (!run.first_micro()) {
    if (kept_format != Format::kF32) decode_sums(run, run.at(kept), pass.partial);
    pass.initial = pass.partial;
  }
  const auto backward = [&](ops::GradConsumer& consumer) {
    WatchedNorm watched(run, joined_norm, run.sinks->data());
    pass.consumer = &consumer;
    run.note_passed(lowered.inputs[0], operation.backward_weights(pass));
    if (bias_grad >= 0 && run.last_micro())
      run.check_vector(static_cast<size_t>(bias), run.floats(bias_grad));
  };
  if (wasted) {
    DropGradient drop;
    backward(drop);
  } else if (!run.last_micro()) {
    KeepSums keep(run, weight, run.at(kept), kept_format);
    backward(keep);
  } else if (fused && !whole) {
    FusedUpdate update(run, weight, gp, reinterpret_cast<optim::GradStats*>(run.at(stats)));
    backward(update);
    const size_t parts = operation.needs().gradient_parts;
    const bool unspent = update.join(parts);
    if (unspent && run.updates(layer)) {
      pass.input_grads = {};
      pass.bias_grad = nullptr;
      operation.backward_weights(pass);
      update.join(parts);
    }
  } else {
    const Format format = whole ? Format::kF32 : kept_format;
    KeepGradient keep(whole ? run.at(room) : run.at(kept), format, gp);
    backward(keep);
    if (keep.lost() > 0) run.note_gradient(weight, {.nonfinite = keep.lost()});
    if (whole) update_parameter(run, weight, pass.partial, Format::kF32, run.at(memory));
  }
}

void WeightsTick::decode_sums(const StepRun& run, const std::byte* sums, float* out) const {
  constexpr size_t kTile = 16384;
  const size_t count = run.parameters->slot(weight).count;
  run.pool->run((count + kTile - 1) / kTile, [&](size_t tile, size_t) {
    const size_t begin = tile * kTile;
    simd::decode(kept_format, sums + begin * numeric::storage_bytes(kept_format), out + begin,
                 std::min(kTile, count - begin));
  });
}

}  // namespace tri::exec
