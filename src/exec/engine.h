#pragma once
// Room: exec. A network with its memory: parameters, room for the next batches, and one step region
// in which training and evaluation take turns. plan() predicts every byte before obtain() takes
// any; after that no step allocates. Knows no files, epochs or policies.
#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "exec/step_run.h"
#include "memory/accounting.h"
#include "memory/arena.h"
#include "tri/result.h"

namespace tri::exec {

struct EngineOptions {
  StepSpec step;
  StorageForms forms;
  bool store = false;        // see LoweringOptions::store
  size_t batch_buffers = 2;  // one is trained on while the next is filled
  bool evaluates = true;     // plan evaluation too, in the same region
  CurvatureSpec curvature;   // plan its passes too, in the same region
};

struct LayerForecast {
  std::string name;
  int64_t params = 0;
  size_t weights_bytes = 0, state_bytes = 0, saved_bytes = 0;
};

// What the engine will need, to the byte.
struct Forecast {
  size_t engine_peak_bytes = 0;  // highest byte of the arena that is ever bound
  memory::KindBytes by_kind;     // each kind's own maximum
  std::vector<LayerForecast> layers;
  int64_t params = 0;
  double useful_gflop = 0.0;  // of one training step
  int64_t eval_samples = 0;   // largest evaluation batch that stays within the peak
  // As asked for, but at most a batch, and halved, down to 2, while the pass would need more than
  // training and more than 1 MiB. 0: no curvature passes.
  int64_t curvature_samples = 0;
};

// Where the caller writes a batch.
struct BatchRoom {
  std::span<float> x;           // (N, H, W, C)
  std::span<int32_t> labels;    // (N)
  std::span<uint64_t> samples;  // (N)
};

struct PhaseSeconds {
  double forward = 0, backward = 0, update = 0;
};

class Engine {
 public:
  // Refuses, with kInvalid and one sentence, a batch that is not a multiple of the ghost batch.
  static Result<std::unique_ptr<Engine>> plan(std::shared_ptr<const nn::Model> model,
                                              const EngineOptions& options);

  const Forecast& forecast() const { return forecast_; }
  const StepPlan& step_plan() const { return train_; }
  const nn::Model& model() const { return *model_; }

  // Takes the memory and zeroes it; draws the initial values of all parameters.
  Result<void> obtain(uint64_t seed);

  Parameters& parameters() { return *parameters_; }
  BatchRoom batch(size_t buffer);

  // The numbers of the next update, one per parameter; the caller edits them between steps.
  std::span<optim::Hyper> hypers() { return hypers_; }

  // One training step on the batch in `buffer`; `step` counts from 1.
  const StepReport& train(size_t buffer, uint64_t step, base::ThreadPool& pool);

  // Loss and ranks of the first `count` <= eval_samples samples in `buffer`, statistics frozen.
  const StepReport& evaluate(size_t buffer, int64_t count, base::ThreadPool& pool);

  // The curvature at the first 2 <= `count` <= curvature_samples samples in `buffer`, nothing
  // changed. Labels are drawn from (seed, step, sample).
  const CurvatureReport& curvature(size_t buffer, int64_t count, uint64_t step,
                                   base::ThreadPool& pool);

  // (N, classes), of the last evaluate(), or of the last train() with StepSpec::update == false.
  void logits(std::span<float> out) const;
  // In PyTorch's order; only with StepMode::kAfter and StepSpec::update == false.
  void gradient(size_t parameter, std::span<float> out) const;

  // Counted at bind and unbind, not taken from the plan.
  size_t measured_peak_bytes() const { return measured_peak_; }
  const memory::Ledger& ledger() const { return ledger_; }
  PhaseSeconds phases() const { return phases_; }  // of the last step
  // Nanoseconds of each tick of the last step, in the order of its plan.
  std::span<const int64_t> tick_ns() const { return tick_ns_; }

 private:
  Engine(std::shared_ptr<const nn::Model> model, const EngineOptions& options);
  void make_plans();
  void plan_curvature();
  void prepare_curvature();
  void make_forecast();
  const StepReport& run(const StepPlan& plan, size_t buffer, uint64_t step, base::ThreadPool& pool);
  void bind(size_t offset, size_t bytes, memory::Kind kind);

  std::shared_ptr<const nn::Model> model_;
  EngineOptions options_;
  Lowered train_graph_, eval_graph_;
  std::unique_ptr<Parameters> parameters_;
  StepPlan train_, eval_, curvature_;
  Forecast forecast_;
  size_t data_offset_ = 0, batch_bytes_ = 0, step_offset_ = 0;
  memory::Arena arena_;
  memory::Ledger ledger_;
  size_t measured_peak_ = 0;
  uint64_t seed_ = 0;
  std::vector<optim::Hyper> hypers_;
  std::vector<optim::Coefficients> coefficients_;
  StepReport report_;
  CurvatureReport curvature_report_;
  std::unique_ptr<SymmetricEigen> solver_;
  CurvatureRun measuring_;
  std::vector<ops::Source> sources_;
  std::vector<ops::Sink> sinks_;
  const StepPlan* last_ = nullptr;
  PhaseSeconds phases_;
  std::vector<int64_t> tick_ns_;
};

}  // namespace tri::exec
