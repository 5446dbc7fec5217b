#pragma once
// Room: exec. What the ticks of a running step share: where the regions lie, the batch, the
// update's numbers, and what the step reports. Lives for one step; owns nothing.
#include <atomic>
#include <optional>
#include <vector>

#include "base/thread_pool.h"
#include "exec/curvature/symmetric_eigen.h"
#include "exec/curvature/vector_gram.h"
#include "exec/step_plan.h"
#include "numeric/noise.h"
#include "ops/softmax_cross_entropy/softmax_cross_entropy.h"

namespace tri::exec {

// The batch as exec needs it; samples are counted by StepSpec.
struct BatchView {
  const float* x = nullptr;           // (N, H, W, C) fp32
  const int32_t* labels = nullptr;    // (N)
  const uint64_t* samples = nullptr;  // (N) identities for random masks; may be null without any
};

// What one step tells; sized once, filled in place. Of several micro-batches: summed over all so
// far; the gradients come with the last.
struct StepReport {
  ops::LossSum loss;
  std::vector<optim::GradStats> gradients;  // by parameter, without loss scale; none: not stepped
  std::vector<ops::StoreCounts> saved;      // what storing Y lost, by tensor
  std::vector<ops::StoreCounts> passed;     // what storing GY lost, by tensor
  // Note [Lost updates]. A GY beyond the range of its format, or a gradient that is not finite or
  // beyond its own, costs its layer's update, and with Skip::kRest all that come after; a loss that
  // is no number costs the step. A layer steps whole or not at all: a gradient is spent part by
  // part only where a bound on its operands shows that every part is finite.
  bool skipped = false;
  int first_bad = -1;         // the layer where it was found; -1: the loss
  std::vector<uint8_t> lost;  // by layer, one more in front for what belongs to none

  void clear();
  void skip(int layer) {
    if (!skipped) first_bad = layer;
    skipped = true;
    lost[static_cast<size_t>(int64_t{layer} + 1)] = 1;
  }
};

// Powers of two that multiply a layer's tensors when they are stored, see ops::Stored::scale; only
// formats with ops::takes_scale() obey.
struct LayerScales {
  float y = 1.0f, gy = 1.0f;
};

// Which part of a step a run of the ticks is.
enum class Pass : uint8_t {
  kWhole,
  kMeasure,  // of two for Clip::kExact: gathers the norm, updates running statistics only
  kApply,    // the second
};

// hessian: whose gradient is wanted, and where.
struct LayerProbe {
  int layer = -1;
  float* gradient = nullptr;
  bool subtract = false;  // gradient = factor * (gradient - the one that is made)
  float factor = 1.0f;
  std::vector<const float*> replaced;  // by parameter: read instead of it; null: as it is
};

// What the ticks of a curvature pass share besides.
struct CurvatureRun {
  bool true_labels = false;  // fisher: for the gradient's noise
  const SymmetricEigen* solver = nullptr;
  CurvatureReport* report = nullptr;
  LayerProbe probe;
};

struct StepRun {
  const StepPlan* plan = nullptr;
  const Parameters* parameters = nullptr;
  base::ThreadPool* pool = nullptr;
  std::byte* region = nullptr;  // of the step
  BatchView batch;
  size_t tick = 0;  // that is running
  Pass part = Pass::kWhole;
  int64_t micro = 0;           // number of the micro-batch
  int64_t counted = 0;         // samples that the loss counts; 0: all
  float grad_scale = 1.0f;     // on the loss: 1 / batch, times the loss scale
  float inverse_scale = 1.0f;  // 1 / loss scale
  float clip = 1.0f;           // Clip::kExact: on all gradients
  uint64_t seed = 0;
  uint64_t step = 0;                                  // counter of stochastic rounding
  const optim::Coefficients* coefficients = nullptr;  // by parameter
  const optim::Hyper* hypers = nullptr;               // by parameter
  const LayerScales* scales = nullptr;                // by layer
  StepReport* report = nullptr;
  std::vector<ops::Source>* sources = nullptr;  // rooms for the arguments of a pass
  std::vector<ops::Sink>* sinks = nullptr;
  CurvatureRun* curvature = nullptr;

  const Lowered& graph() const { return *plan->graph; }
  std::byte* at(int buffer) const {
    const Buffer& b = plan->buffers[static_cast<size_t>(buffer)];
    return region + b.at(tick).offset;
  }
  float* floats(int buffer) const { return reinterpret_cast<float*>(at(buffer)); }
  bool first_micro() const { return micro == 0; }
  bool last_micro() const { return micro + 1 == plan->spec.micros; }
  // Nothing of this step will step any more, so its backward ticks are not run. After a loss that
  // is no number gradients are made all the same: they tell where the trouble is.
  bool wasted() const {
    return report->first_bad >= 0 && part == Pass::kWhole && plan->spec.update &&
           plan->spec.skip == Skip::kRest;
  }
  bool loses(int layer) const {
    return report->skipped && (report->first_bad < 0 || plan->spec.skip == Skip::kRest ||
                               report->lost[static_cast<size_t>(int64_t{layer} + 1)] != 0);
  }
  bool updates(int layer) const { return last_micro() && part != Pass::kMeasure && !loses(layer); }
  int layer_of(size_t parameter) const {
    return graph().model->nodes[static_cast<size_t>(parameters->slot(parameter).node)].layer;
  }

  // Books what storing a gradient lost.
  void note_passed(int t, const ops::StoreCounts& counts) const;
  void note_gradient(size_t parameter, const optim::GradStats& stats) const;
  // Of a bias or a norm parameter: costs the layer its update if it is not finite.
  void check_vector(size_t parameter, const float* grad) const;

  // How tensor `t` is read, with its load transform.
  ops::Source source(int t) const;
  // The gradient of the stored tensor t; `before_norm`: as it is until batch norm's backward pass
  // has gathered its sums.
  ops::GradSource grad_source(int t, bool before_norm = false) const;
  // The node's parameters, moved where a curvature pass moves them.
  ops::Weights weights(const nn::Node& node) const;
  const float* vector(int parameter) const;
  ops::Sink data_sink(int t) const;
  ops::Sink grad_sink(int t, bool accumulate) const;
  float value_scale(int t) const;
  float grad_scale_of(int t) const;
  ops::NormBatch norm_batch(int norm) const;
  ops::NormGrads norm_grads(int norm) const;
  const float* replaced(int parameter) const;
  bool moves_layer() const { return curvature != nullptr && curvature->probe.layer >= 0; }
  ops::NormParams norm_params(int norm) const;
  FrozenNorm frozen_norm(int norm) const;
};

// While it lives, whoever writes to `sink`, the gradient of a norm's tensor, makes that norm's
// sums: Note [Watched rows]. Books what that lost.
class WatchedNorm {
 public:
  WatchedNorm(const StepRun& run, int norm, ops::Sink* sink);  // norm < 0: nothing is watched
  ~WatchedNorm();
  WatchedNorm(const WatchedNorm&) = delete;
  WatchedNorm& operator=(const WatchedNorm&) = delete;

 private:
  const StepRun& run_;
  int norm_;
  std::optional<ops::NormGradSums> sums_;
};

// Steps parameter `index` by a gradient that lies whole in `format`, if this is the time to step
// (StepRun::updates()). `scratch` as update_scratch_bytes() says.
void update_parameter(const StepRun& run, size_t index, const void* grad, Format format,
                      std::byte* scratch);
size_t update_scratch_bytes(size_t count, size_t threads);

optim::GradStats whole_stats(const StepRun& run, size_t index, const void* grad, Format format,
                             std::byte* scratch);

// Clip::kExact: from the gradients in the report to StepRun::clip.
void clip_exactly(StepRun& run);

// Steps parts of a parameter as they are delivered; parts are rounded to `gp` first. Where their
// bound is too large it only looks at them, and the gradient has to be made once more.
class FusedUpdate final : public ops::GradConsumer {
 public:
  // `stats`: one for every part, in scratch.
  FusedUpdate(const StepRun& run, size_t index, Format gp, optim::GradStats* stats);
  void expect(float most) noexcept override;
  void consume(size_t part, int64_t begin, int64_t count, const float* grad) noexcept override;
  // Joins the parts in their order into the report. True: all are finite and none has stepped, so
  // that they may come again, to step now.
  bool join(size_t parts);

 private:
  bool may_reach(float magnitude) const;  // without being lost

  const StepRun& run_;
  size_t index_;
  Format gp_;
  optim::GradStats* stats_;
  optim::Coefficients coefficients_;
  bool updates_;         // now or when the parts come again
  bool finite_ = false;  // all parts are known to be
};

// Keeps parts of a gradient in `format`, rounded to `gp` on the way.
class KeepGradient final : public ops::GradConsumer {
 public:
  KeepGradient(std::byte* gradient, Format format, Format gp)
      : gradient_(gradient), format_(format), gp_(gp) {}
  void consume(size_t part, int64_t begin, int64_t count, const float* grad) noexcept override;
  uint64_t lost() const { return lost_.load(); }  // not finite, or beyond the format

 private:
  std::byte* gradient_;
  Format format_, gp_;
  std::atomic<uint64_t> lost_ = 0;
};

// Keeps the sums of a gradient for the next micro-batch, stochastically rounded if `format` is not
// fp32.
class KeepSums final : public ops::GradConsumer {
 public:
  KeepSums(const StepRun& run, size_t index, std::byte* sums, Format format);
  void consume(size_t part, int64_t begin, int64_t count, const float* grad) noexcept override;

 private:
  std::byte* sums_;
  Format format_;
  numeric::NoiseKey key_;
};

}  // namespace tri::exec
