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
  size_t batch_buffers = 1;  // batches that lie in the arena at a time
  bool evaluates = true;     // plan evaluation too, in the same region
  size_t most_bytes = 0;     // up to which replan() may grow; 0: not beyond the first plan
  CurvatureSpec curvature;   // plan its passes too, in the same region
};

struct LayerForecast {
  std::string name;
  int64_t params = 0;
  size_t weights_bytes = 0, state_bytes = 0, saved_bytes = 0;
  ops::Kernels kernels, others;  // see ops::Needs
  bool multiplies_bf16 = false;
};

// What the engine will need, to the byte.
struct Forecast {
  size_t engine_peak_bytes = 0;  // highest byte of the arena that is ever bound
  memory::KindBytes by_kind;     // each kind's own maximum
  std::vector<LayerForecast> layers;
  int64_t params = 0;
  double useful_gflop = 0.0;  // of one training step
  double again = 0.0;         // multiply-adds of recomputed blocks, as a share of the useful ones
  int64_t eval_samples = 0;   // largest evaluation batch that stays within the peak
  // As asked for, but at most a batch, and halved, down to 2, while the pass would need more room
  // for activations than training and more than 1 MiB. 0: no curvature passes.
  int64_t curvature_samples = 0;
};

// Where the caller writes a batch.
struct BatchRoom {
  std::span<float> x;           // (N, H, W, C)
  std::span<int32_t> labels;    // (N)
  std::span<uint64_t> samples;  // (N)
};

// What changes from step to step.
struct StepOrder {
  uint64_t step = 1;        // counts updates from 1
  float loss_scale = 1.0f;  // a power of two; multiplies gradients on their way, not their effect
  int64_t micro = 0;        // of StepSpec::micros, in order
  uint64_t lost = 0;  // steps before it that are no updates: Adam's bias corrects without them
};

struct PhaseSeconds {
  double forward = 0, backward = 0, update = 0;
};

class Engine {
 public:
  // Refuses, with kInvalid and one sentence, a batch that is not a multiple of the ghost batch.
  static Result<std::unique_ptr<Engine>> plan(std::shared_ptr<const nn::Model> model,
                                              const EngineOptions& options);

  const Forecast& forecast() const { return now_.forecast; }
  const StepPlan& step_plan() const { return now_.train; }
  const nn::Model& model() const { return *model_; }
  const std::shared_ptr<const nn::Model>& shared_model() const { return model_; }

  // Takes the memory and zeroes it; draws the initial values of all parameters.
  Result<void> obtain(uint64_t seed);

  Parameters& parameters() { return *parameters_; }
  BatchRoom batch(size_t buffer);

  // Between steps: another batch, precision table, number of micro-batches or recomputation.
  // Parameters, state and running statistics stay where they are; the contents of the batch rooms
  // are lost and their addresses change. Fails with kInvalid as plan() does, or with kDoesNotFit if
  // the system has no more memory; everything is then as before.
  Result<void> replan(const StepSpec& spec);
  // What replan() would need. Costs a few milliseconds and takes nothing.
  Result<Forecast> price(const StepSpec& spec) const;
  const StepSpec& spec() const { return now_.train.spec; }
  const Lowered& lowered() const { return train_graph_; }

  // The numbers of the next update, one per parameter; the caller edits them between steps.
  std::span<optim::Hyper> hypers() { return hypers_; }
  std::span<LayerScales> scales() { return scales_; }  // one per layer, likewise

  // One micro-batch of a training step, on the batch in `buffer`; with the last one weights step.
  const StepReport& train(size_t buffer, const StepOrder& order, base::ThreadPool& pool);

  // Loss and ranks of the first `count` <= eval_samples samples in `buffer`, statistics frozen. The
  // samples behind them are computed too, as one plan serves all counts, but tell nothing.
  const StepReport& evaluate(size_t buffer, int64_t count, base::ThreadPool& pool);

  // The curvature at the first curvature_samples > 0 samples in `buffer`, nothing changed. Labels
  // are drawn from (seed, step, sample).
  const CurvatureReport& curvature(size_t buffer, uint64_t step, base::ThreadPool& pool);

  // (N, classes) for the first N samples, of the last evaluate(), or of the last train() with
  // StepSpec::update == false.
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
  // All that follows from a StepSpec.
  struct Layout {
    StepPlan train, eval;
    StepPlan curvature;  // no ticks: none
    Forecast forecast;
    size_t data_offset = 0, batch_bytes = 0, step_offset = 0;
  };

  Engine(std::shared_ptr<const nn::Model> model, const EngineOptions& options);
  Layout lay_out(const StepSpec& spec) const;
  Forecast forecast_of(const Layout& layout) const;
  void reserve_rooms();
  StepPlan plan_curvature(const StepPlan& train) const;
  void prepare_curvature();
  void run(StepRun& context, size_t buffer, base::ThreadPool& pool);
  StepRun context_of(const StepPlan& plan);
  void bind(size_t offset, size_t bytes, memory::Kind kind);

  std::shared_ptr<const nn::Model> model_;
  EngineOptions options_;
  Lowered train_graph_, eval_graph_;
  std::unique_ptr<Parameters> parameters_;
  Layout now_;
  memory::Arena arena_;
  memory::Ledger ledger_;
  size_t measured_peak_ = 0;
  uint64_t seed_ = 0;
  std::vector<optim::Hyper> hypers_;
  std::vector<optim::Coefficients> coefficients_;
  std::vector<LayerScales> scales_;
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
