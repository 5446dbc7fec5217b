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

// How gradients are kept from exceeding a norm (StepSpec::clip_norm). Clipping by the norm of the
// step before needs no plan: it is a Hyper::grad_scale.
enum class Clip : uint8_t {
  kNone,
  kLayer,  // each parameter by its own norm
  kExact,  // all by the norm of the whole gradient; kFused then runs every step twice
};

// What a gradient that is not finite, or beyond its format, costs. A loss that is no number costs
// the whole step.
enum class Skip : uint8_t {
  kLayer,  // the update of its layer
  kRest,   // that, and the updates of all layers that have not stepped yet; with kAfter of all
};

// Operations [first, last] of the lowered graph whose tensors, as far as nobody behind them reads
// them, are dropped after the forward pass and made again before the backward pass needs them.
struct Segment {
  int first = 0, last = 0;
  bool operator==(const Segment&) const = default;
};

// Note [Light tensors]. A sum or a concatenation is made of tensors that are stored as well. To
// keep it costs as many bytes as any of them, to make it again one pass over memory: it is dropped
// behind its last reader and made again when the way back first needs it, its own light inputs
// before it. Such an input is dropped once more if it can be made of what is kept: its own turn
// comes later. Within a Segment that decides. No bit changes.
bool is_light(const LoweredOp& op);

struct StepSpec {
  int64_t samples = 1;                // of one micro-batch
  int64_t ghost = 0;                  // samples of a ghost batch; 0: the whole micro-batch
  int64_t micros = 1;                 // micro-batches whose gradients are summed before the update
  Format accumulate = Format::kBf16;  // in which those sums wait for the next micro-batch
  size_t threads = 1;
  bool training = true;  // false: forward and loss only, with running statistics
  StepMode mode = StepMode::kAfter;
  bool update = true;  // false with kAfter: gradients and logits are left for the caller to read
  optim::Rule rule = optim::Rule::kSgd;
  float label_smoothing = 0.0f;
  Clip clip = Clip::kNone;
  float clip_norm = 0.0f;
  Skip skip = Skip::kRest;
  std::vector<LayerFormats> formats;  // by layer; empty: fp32 throughout
  std::vector<ops::Kernels> kernels;  // by layer; empty: as their shapes say
  std::vector<Segment> recompute;     // disjoint, in order
  bool drop_light = false;            // see Note [Light tensors]; not with power iteration
  CurvatureSpec curvature;            // a curvature pass instead of a step; needs `training`

  int64_t batch() const { return samples * micros; }
  bool measures() const { return curvature.estimator != Estimator::kNone; }
  bool frozen() const { return !training || measures(); }  // running statistics
  bool operator==(const StepSpec&) const = default;
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

// The ticks from a buffer's first use to its last, and where it lies in the step region meanwhile.
struct Life {
  size_t first = SIZE_MAX, last = 0;
  size_t offset = 0;
  bool used() const { return first <= last; }
};

struct Buffer {
  std::string name;
  size_t bytes = 0;
  memory::Kind kind = memory::Kind::kActivations;
  memory::End end = memory::End::kSaved;
  int layer = -1;
  // In order; more than one where it is dropped and made again (Segment, Note [Light tensors]).
  std::vector<Life> lives{1};

  const Life& at(size_t tick) const {
    size_t i = lives.size() - 1;
    while (i > 0 && tick < lives[i].first) --i;
    return lives[i];
  }
  bool dropped() const { return lives.size() > 1; }
};

struct TensorSlots {
  int data = -1;  // buffer; -1: the input, or a scaled tensor
  int grad = -1;
  // Note [Gradients under a factor]: what lies in `grad` is still to be multiplied with this (index
  // into Lowered::factors), then this (buffer) is to be added: until the norm rewrites it, or for
  // good, where there are sums (buffer) for the norm.
  int grad_factor = -1, grad_addend = -1, factored_sums = -1;
  Format y = Format::kF32, gy = Format::kF32;
  bool of_half = false;  // see ops::Source; y in 16 bits or fewer
};

struct NormSlots {
  int batch = -1;  // mean, inverse, scale, shift; with running statistics: scale, shift
  int grads = -1;  // a, b, c, then the gradients of gamma and beta
  // Scratch of ops::NormSums for either direction: where the operation that writes the tensor makes
  // them, alive from there to the norm's own tick.
  int sums = -1;
  int grad_sums = -1;
  // Either may be switched off in a finished plan: the norm's own tick then makes the sums, of
  // other bits where rows would have been passed and the gradient is narrow.
  bool watched = false;       // the operation before it makes the sums
  bool grad_watched = false;  // its first reader does, on the way back
  bool grad_passed = false;   // and lets the norm change rows before they are stored
  bool rewrites = false;      // backward replaces GY by dz, see ops::Rewrite
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
  const LayerFormats& formats(int layer) const;
};

StepPlan plan_step(const Lowered& graph, const Parameters& parameters, const StepSpec& spec);

}  // namespace tri::exec
