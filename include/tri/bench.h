#pragma once
// Door of room train: how fast the engine is on this machine, and how fast it could be at best.
// Needs no data and writes no files.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tri/config.h"
#include "tri/result.h"

namespace tri {

struct StepPhases {
  double data = 0, forward = 0, backward = 0, update = 0, control = 0;
};

// --tune: one pass of a layer that has two kernels; the first is the one that was taken.
struct KernelTime {
  std::string layer;
  std::string_view pass;  // "forward" or "backward"
  std::string_view kernel;
  double ms = 0;  // of the layer's whole pass, the best that was seen
  std::string_view other;
  double other_ms = 0;
};

struct StepBench {
  double ms_per_step = 0;  // median
  double images_per_second = 0;
  uint64_t engine_peak_bytes = 0;  // counted as buffers were bound
  uint64_t process_peak_bytes = 0;
  double useful_gflop = 0;  // of one step: multiplications and additions with real pixels
  double gflops = 0;
  double peak_gflops = 0;  // of this machine, in this run, on the same threads
  double fraction_of_peak = 0;
  // From one core to another and back, the longer of two tries: some tens where cores share a
  // cache, hundreds where they do not. Times are comparable where these are alike.
  double handover_ns = 0;
  StepPhases phases;                // ms, medians
  std::vector<KernelTime> kernels;  // with --tune
};

// Whole training steps on made-up images that are cropped and mirrored as a run does it,
// Config::steps of them after a warm-up.
// kDoesNotFit if the plan is above --memory. Without --data as plan_memory() does.
Result<StepBench> bench_step(const ResolvedConfig& resolved);

struct KernelBench {
  std::string kernel, shape, storage;
  double ms = 0;         // median
  bool computes = true;  // rates are in gflops, otherwise in gbytes_per_second
  double rate = 0;
  double limit = 0;  // the roofline at the time
  double fraction = 0;
};

// Every kernel on shapes of the known networks whose line "kernel, shape, storage" holds `only`;
// calls `show` as each is done. kInvalid if there is none.
Result<void> bench_kernels(size_t threads, const std::string& only,
                           const std::function<void(const KernelBench&)>& show);

}  // namespace tri
