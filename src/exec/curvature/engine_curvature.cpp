// The curvature passes of an Engine: their plan in the step region, and their run.
#include <algorithm>

#include "base/check.h"
#include "exec/engine.h"

namespace tri::exec {
namespace {

// A curvature pass of a tiny network is mostly scratch, which a smaller batch would not shrink.
constexpr size_t kSmallPass = 1 << 20;

}  // namespace

// The network as evaluation sees it, stored and differentiated in fp32 whatever the table says of
// training: what is measured is the loss, not the rounding of its gradients.
StepPlan Engine::plan_curvature(const StepPlan& train) const {
  if (options_.curvature.estimator == Estimator::kNone || train.spec.samples < 2) return {};
  StepSpec spec = train.spec;
  spec.curvature = options_.curvature;
  spec.ghost = 0;
  spec.micros = 1;
  spec.clip = Clip::kNone;
  spec.recompute.clear();
  spec.drop_light = spec.drop_light && options_.curvature.estimator == Estimator::kFisher;
  spec.mode = StepMode::kAfter;
  if (spec.curvature.estimator == Estimator::kFisher) spec.label_smoothing = 0.0f;
  for (LayerFormats& row : spec.formats) row = {row.p, Format::kF32, Format::kF32, Format::kF32};
  spec.samples = std::clamp<int64_t>(options_.curvature.samples, 2, train.spec.samples);
  for (;; spec.samples = std::max<int64_t>(2, spec.samples / 2)) {
    StepPlan plan = plan_step(eval_graph_, *parameters_, spec);
    // Activations alone: scratch grows with the threads, which must not have a say.
    const size_t room = std::max(train.peak_by_kind[memory::Kind::kActivations], kSmallPass);
    if (!spec.curvature.shrinks || spec.samples == 2 ||
        plan.peak_by_kind[memory::Kind::kActivations] <= room)
      return plan;
  }
}

// Everything the pass and its report need outside the arena.
void Engine::prepare_curvature() {
  const StepSpec& spec = now_.curvature.spec;
  solver_ = std::make_unique<SymmetricEigen>(spec.samples);
  curvature_report_.samples = spec.samples;
  curvature_report_.layers.resize(static_cast<size_t>(model_->layers));
  for (LayerCurvature& layer : curvature_report_.layers)
    layer.eigenvalues.resize(spec.curvature.top);
  curvature_report_.noise.squared_norms.resize(static_cast<size_t>(spec.samples));
  if (spec.curvature.estimator == Estimator::kHessian)
    measuring_.probe.replaced.assign(parameters_->size(), nullptr);
}

const CurvatureReport& Engine::curvature(size_t buffer, uint64_t step, base::ThreadPool& pool) {
  const int64_t count = forecast().curvature_samples;
  TRI_CHECK(count >= 2, "curvature is not planned for");
  const CurvatureSpec& spec = now_.curvature.spec.curvature;
  measuring_.true_labels = false;
  measuring_.solver = solver_.get();
  measuring_.report = &curvature_report_;
  report_.clear();
  phases_ = {};
  tick_ns_.clear();
  StepRun context = context_of(now_.curvature);
  context.step = step;
  // Per-sample gradients are those of the sum of losses.
  context.grad_scale =
      spec.estimator == Estimator::kFisher ? 1.0f : 1.0f / static_cast<float>(count);
  run(context, buffer, pool);
  if (spec.estimator == Estimator::kFisher && spec.noise) {
    measuring_.true_labels = true;
    run(context, buffer, pool);
  }
  return curvature_report_;
}

}  // namespace tri::exec
