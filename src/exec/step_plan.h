#pragma once
// Room: exec. One training step (or one evaluation pass) as a list of ticks with every buffer
// placed: a function of the network, the batch and the precision table. Making a plan touches no
// data and obtains no memory; running its ticks decides nothing.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exec/curvature/curvature.h"
#include "exec/lowering.h"
#include "exec/parameters.h"
#include "memory/planner.h"
#include "ops/batch_norm/norm.h"
#include "ops/operation.h"
#include "optim/update.h"

namespace tri::exec {

using numeric::Format;

// One row of the precision table: a weight layer and what follows it.
struct LayerFormats {
  Format p = Format::kF32;   // in which the weight works
  Format y = Format::kF32;   // saved output
  Format gy = Format::kF32;  // gradient of the output
  Format gp = Format::kF32;  // gradient of the weight
  bool operator==(const LayerFormats&) const = default;
};

enum class StepMode : uint8_t {
  kAfter,  // all gradients are kept, then all weights step
  kFused,  // a layer's weights step as soon as their gradient is there; nothing is kept
};

struct StepSpec {
  int64_t samples = 1;
  int64_t ghost = 0;  // samples of a ghost batch; 0: the whole batch
  size_t threads = 1;
  bool training = true;  // false: forward and loss only, with running statistics
  StepMode mode = StepMode::kAfter;
  bool update = true;  // false with kAfter: gradients and logits are left for the caller to read
  optim::Rule rule = optim::Rule::kSgd;
  float label_smoothing = 0.0f;
  std::vector<LayerFormats> formats;  // by layer; empty: fp32 throughout
  CurvatureSpec curvature;            // a curvature pass instead of a step; needs `training`
  bool measures() const { return curvature.estimator != Estimator::kNone; }
  bool frozen() const { return !training || measures(); }  // running statistics
};

struct StepRun;  // what the ticks of one running step share (step_run.h)

enum class Phase : uint8_t { kForward, kBackward, kUpdate };

struct Tick {
  std::string name;
  Phase phase = Phase::kForward;
  std::function<void(StepRun&)> run;
  std::vector<int> begins, ends;  // buffers whose life begins or ends here
  int op = -1;                    // of the lowered graph
};

struct Buffer {
  std::string name;
  size_t bytes = 0;
  memory::Kind kind = memory::Kind::kActivations;
  memory::End end = memory::End::kSaved;
  int layer = -1;
  size_t first = SIZE_MAX, last = 0;  // ticks
  size_t offset = 0;                  // in the step region
};

struct TensorSlots {
  int data = -1;  // buffer; -1: the input, or a scaled tensor
  int grad = -1;
  Format y = Format::kF32, gy = Format::kF32;
};

struct NormSlots {
  int batch = -1;         // mean, inverse, scale, shift; with running statistics: scale, shift
  int grads = -1;         // a, b, c, then the gradients of gamma and beta
  bool rewrites = false;  // backward replaces GY by dz, see ops::norm_backward
  std::unique_ptr<ops::NormPlan> plan;
};

struct StepPlan {
  StepSpec spec;
  const Lowered* graph = nullptr;  // outlives this
  std::vector<Tick> ticks;
  std::vector<Buffer> buffers;
  std::vector<TensorSlots> tensors;  // by tensor
  std::vector<NormSlots> norms;
  std::vector<int> factors, depths;                         // buffers
  std::vector<int> saved;                                   // buffers by op; -1: none
  std::vector<int> gates;                                   // buffers by tensor, or empty
  std::vector<int> gradients;                               // buffers by parameter; -1: not kept
  std::vector<std::unique_ptr<ops::Operation>> operations;  // by op; null for kChannelScale
  int gram = -1, labels = -1;                               // buffers of a curvature pass
  size_t arena_bytes = 0;                                   // of the step region
  size_t lower_bound = 0;
  memory::KindBytes peak_by_kind;  // each kind's own maximum
  int64_t macs = 0;                // useful multiply-adds of one sample's forward pass
  bool has_gradients() const { return spec.training; }
  const LayerFormats& formats(int layer) const;
};

StepPlan plan_step(const Lowered& graph, const Parameters& parameters, const StepSpec& spec);

}  // namespace tri::exec
