#pragma once
// Room: exec. The tick that makes the gradient of one layer's weights and spends or keeps it: what
// it does depends on the plan (fused or after, clipped, summed over micro-batches) and, of several
// micro-batches, on which one runs.
#include <cstddef>
#include <utility>
#include <vector>

#include "exec/step_run.h"

namespace tri::exec {

struct WeightsTick {
  size_t op = 0;      // of the lowered graph
  size_t weight = 0;  // parameter
  int layer = -1;
  Format gp = Format::kF32;           // the gradient is rounded to this before anybody sees it
  Format kept_format = Format::kF32;  // of a gradient that is kept
  bool fused = false;
  int bias = -1;       // parameter
  bool whole = false;  // fused, but the whole gradient must be there before the update
  int partial = -1;    // buffers: sums in fp32; -1: the kept gradient serves, or none is needed
  int stats = -1;
  int memory = -1;
  int bias_grad = -1;
  // Gradients of inputs (tensor, accumulate) that the operation makes in the same pass.
  std::vector<std::pair<int, bool>> joined;
  int joined_norm = -1;  // whose sums the first of them makes, see WatchedNorm

  void run(StepRun& run) const;

 private:
  void decode_sums(const StepRun& run, const std::byte* sums, float* out) const;
};

}  // namespace tri::exec
