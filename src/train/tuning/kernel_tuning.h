#pragma once
// Room: train. --tune: which kernel is the faster one in each layer, by steps on made-up images
// before the first real one. In: an engine's options. Out: StepSpec::kernels, and what was seen.
// The only place where a clock has a say in the bits of a run: the caller keeps the table with the
// run, and nobody measures twice.
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "exec/engine.h"
#include "tri/bench.h"
#include "tri/result.h"

namespace tri::train {

struct KernelTuning {
  std::vector<ops::Kernels> kernels;  // by layer; by shape where there is no choice
  std::vector<KernelTime> times;      // of every pass that has a choice; empty: not measured
};

// Runs whole steps in turn with the rule's kernels and with the others, in memory of its own that
// is given back; `hyper` steps its weights. Up to `room` bytes: what would need more is not tried,
// and the rule's kernels stay. Takes twelve steps, or fewer where they are long.
Result<KernelTuning> tune_kernels(const std::shared_ptr<const nn::Model>& model,
                                  exec::EngineOptions options, const optim::Hyper& hyper,
                                  uint64_t room, base::ThreadPool& pool);

// kernels.json of a run: what was measured, for people.
std::string to_json(std::span<const KernelTime> times);

}  // namespace tri::train
