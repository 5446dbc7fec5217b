#pragma once
// Room: ops. What exec sees of an operation that has kernels: what it needs, and its passes. One is
// made per node, batch and number of threads; making it settles every cut and every byte, running
// it only runs. Batch norm, activations, squeeze-excite's product, stochastic depth and flatten are
// no operations: they are read through the load transform (ops/rows/rows.h).
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "ops/conv2d/outer_conv.h"
#include "ops/kernel_choice.h"
#include "ops/op.h"
#include "ops/rows/rows.h"
#include "ops/rows/weights.h"

namespace tri::ops {

struct OperationSpec {
  OpKind kind = OpKind::kAdd;
  Attributes attr;
  std::vector<Shape> inputs;
  Shape output;
  int64_t samples = 1;
  int64_t ghost = 0;  // samples of a ghost batch, 0: the whole batch
  size_t threads = 1;
  uint64_t layer = 0;  // counter of random masks
  Kernels kernels = {};
  Format working = Format::kF32;  // in which the weights work: PassArguments::weights.working
  Activation activation = Activation::kNone;  // through which the first input is read
};

struct Needs {
  size_t saved_bytes = 0;  // left by forward for backward, beside the inputs
  size_t forward_scratch = 0;
  size_t backward_scratch = 0;
  size_t weights_scratch = 0;
  bool whole_gradient = false;    // backward_weights() uses PassArguments::partial
  bool bounded_gradient = false;  // it tells a bound before the first part, see GradConsumer
  // Given input_grads and weights, backward_weights() does the work of backward_data() too, with
  // the same bits and fewer passes over the gradient.
  bool data_with_weights = false;
  bool tells_forward = false;  // obeys output.watcher
  bool tells_data = false;     // obeys input_grads[0].watcher
  bool passes_data = false;    // and lets it change rows, unless it adds them
  size_t gradient_parts = 0;   // calls of consumer->consume()
  // Which kernels it runs, and which it has besides: the same where there is no choice.
  Kernels kernels{Kernel::kDirect, Kernel::kDirect}, others{Kernel::kDirect, Kernel::kDirect};
  bool multiplies_bf16 = false;  // see products_for() in conv2d/pair_kernel.h
  int64_t macs = 0;              // multiply-adds with real numbers of one sample's forward pass
};

// What exec lends for one pass; each field only where its pass is named.
struct PassArguments {
  base::ThreadPool* pool = nullptr;
  std::byte* scratch = nullptr;
  std::byte* saved = nullptr;
  std::span<const Source> inputs;     // forward, backward_weights
  Sink output;                        // forward
  GradSource output_grad;             // backward_data, backward_weights
  std::span<const Sink> input_grads;  // backward_data (see Needs); no data where none is wanted
  std::span<StoreCounts> lost;        // backward_data of an add: what each of input_grads lost
  Weights weights;                    // forward, backward_data (see Needs)
  const float* bias = nullptr;        // forward; padded to 32 numbers
  bool again = false;                 // forward: what `saved` says was chosen is chosen again
  const float* initial = nullptr;     // backward_weights: sums to continue from, or null
  float* partial = nullptr;           // backward_weights: room for the whole gradient
  GradConsumer* consumer = nullptr;   // backward_weights
  float* bias_grad = nullptr;         // backward_weights: sums to continue; null without a bias
  uint64_t seed = 0;                  // of random masks
  const uint64_t* samples = nullptr;  // identities of the samples, for random masks
};

class Operation {
 public:
  virtual ~Operation() = default;
  const Needs& needs() const { return needs_; }

  // Passes return what storing lost. Each is called with the same spec's tensors only.
  virtual StoreCounts forward(const PassArguments& pass) noexcept = 0;
  virtual StoreCounts backward_data(const PassArguments& pass) noexcept = 0;
  virtual StoreCounts backward_weights(const PassArguments& pass) noexcept;

 protected:
  // Settles which kernel runs.
  void choose(const Kernels& asked, const KernelChoice& forward, const KernelChoice& backward) {
    needs_.kernels = {forward.of(asked.forward), backward.of(asked.backward)};
    needs_.others = {forward.instead_of(needs_.kernels.forward),
                     backward.instead_of(needs_.kernels.backward)};
  }

  Needs needs_;
};

// REQUIRES: a kind that has kernels (see above).
std::unique_ptr<Operation> make_operation(const OperationSpec& spec);
bool has_kernels(OpKind kind);

}  // namespace tri::ops
