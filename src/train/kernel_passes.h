#pragma once
// Room: train. One kernel with the memory it works on, ready to be run and timed: made-up numbers
// in a given storage, read through the transforms that a network has (norm and ReLU). Counts the
// useful multiply-adds of a run and the bytes that must pass.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "numeric/format.h"
#include "ops/op.h"
#include "optim/update.h"

namespace tri::train {

struct KernelPass {
  std::string kernel;
  double flops = 0;  // 0: bound by memory
  double bytes = 0;  // 0: bound by arithmetic alone
  std::function<void()> run;
  bool multiplies_bf16 = false;
};

struct KernelShape {
  ops::OpKind kind = ops::OpKind::kConv2d;
  ops::Attributes attr;
  tensor::Shape in;
  int64_t inputs = 1;   // all of the same shape
  int64_t samples = 0;  // 0: as many as move 64 MB
};

// The forward and backward passes of an operation. `pool` must outlive them; they share their
// memory.
std::vector<KernelPass> operation_passes(const std::string& kernel, const KernelShape& shape,
                                         numeric::Format storage, base::ThreadPool& pool);

// Statistics and backward sums of a batch norm.
std::vector<KernelPass> norm_passes(const tensor::Shape& shape, numeric::Format storage,
                                    base::ThreadPool& pool);

// One step of 16 Mi parameters.
KernelPass update_pass(optim::Rule rule, optim::WeightForm weights, optim::StateForm state,
                       base::ThreadPool& pool);

}  // namespace tri::train
