#pragma once
// A network as its definition says, node by node in double precision: what the engine's lowering,
// aliasing and kernels are compared with. Knows nothing of them; reads only nn::Model.
#include <cstdint>
#include <limits>
#include <vector>

#include "nn/model.h"
#include "numeric/format.h"

namespace tri::contract {

using Numbers = std::vector<double>;

struct Problem {
  int64_t samples = 1;
  int64_t ghost = 0;  // 0: the whole batch
  double smoothing = 0.0;
  uint64_t seed = 0;  // of random masks
  bool training = true;
  bool frozen = false;  // gradients of the network as evaluation sees it
  // Computed in fp32, in this file's order: how far that is from double precision is how far other
  // fp32 code may be.
  bool single = false;
  // The format in which every value and every gradient of a node is kept.
  numeric::Format kept_in = numeric::Format::kF32;
  Numbers x;  // (N, H, W, C)
  std::vector<int32_t> labels;
  std::vector<uint64_t> ids;
  std::vector<Numbers> parameters;  // PyTorch's order
};

struct Solution {
  double loss = 0.0;  // mean over samples
  Numbers logits;
  std::vector<Numbers> gradients;                       // by parameter
  std::vector<Numbers> magnitudes;                      // the same sums with all terms positive
  std::vector<Numbers> running_mean, running_variance;  // by node, after the step, from 0 and 1
  // The least distance of a number to where its function has a kink: a ReLU's zero, another
  // maximum.
  double margin = std::numeric_limits<double>::infinity();
};

// Forward and, if training, backward. Evaluation, and frozen training, take `before`'s running
// statistics.
Solution solve(const nn::Model& model, const Problem& problem, const Solution* before = nullptr);

}  // namespace tri::contract
