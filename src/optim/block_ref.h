#pragma once
// Room: optim. The loop of block-inl.h in plain scalar C++: what the SIMD kernels must equal, bit
// for bit. A rule is a struct with step() and direction() over single floats.
#include <algorithm>
#include <cmath>

#include "optim/kernel.h"

namespace tri::optim {

// One block, opened as fp32.
struct BlockRef {
  float grad[kBlock] = {};  // scaled
  float weights[kBlock] = {};
  float first[kBlock] = {};
  float second[kBlock] = {};

  // Loads block `at`; returns the number of non-finite scaled gradients.
  size_t open(const Task& task, size_t at);
  void close(const Task& task, size_t at) const;
};

// Sums in kChains interleaved chains, and the largest magnitude.
struct ChainsRef {
  double sum[kChains] = {};
  double squares[kChains] = {};
  float max_abs = 0;

  void add(size_t element, float x);
  double total() const;
  double total_squares() const;
};

template <class StepRule>
GradStats update_blocks_ref(const Task& task) {
  ChainsRef chains;
  GradStats stats;
  for (size_t at = task.begin; at < task.begin + task.count; at += kBlock) {
    BlockRef block;
    const size_t nonfinite = block.open(task, at);
    stats.nonfinite += nonfinite;
    for (size_t i = 0; i < std::min(kBlock, task.begin + task.count - at); ++i) {
      if (std::isfinite(block.grad[i])) chains.add(i, task.grad[at - task.begin + i]);
    }
    if (nonfinite != 0) continue;
    for (size_t i = 0; i < kBlock; ++i) {
      StepRule::step(task.coefficients, block.grad[i], block.weights[i], block.first[i],
                     block.second[i]);
    }
    block.close(task, at);
  }
  stats.sum = chains.total();
  stats.sum_squares = chains.total_squares();
  stats.max_abs = chains.max_abs;
  return stats;
}

template <class StepRule>
Norms measure_blocks_ref(const Task& task) {
  ChainsRef of_weights, of_direction;
  Norms norms;
  for (size_t at = task.begin; at < task.begin + task.count; at += kBlock) {
    BlockRef block;
    const size_t nonfinite = block.open(task, at);
    norms.nonfinite += nonfinite;
    if (nonfinite != 0) continue;
    for (size_t i = 0; i < kBlock; ++i) {
      of_weights.add(i, block.weights[i]);
      of_direction.add(i, StepRule::direction(task.coefficients, block.grad[i], block.weights[i],
                                              block.first[i], block.second[i]));
    }
  }
  norms.weight_squares = of_weights.total_squares();
  norms.direction_squares = of_direction.total_squares();
  return norms;
}

}  // namespace tri::optim
