#pragma once
// Door of room train: one training step on given weights and a given batch, for checking against
// other frameworks. Files are safetensors with torchvision's names; nothing is updated.
#include <cstdint>
#include <string>

#include "tri/config.h"
#include "tri/result.h"

namespace tri {

// How many samples the batch in `input` has: Config::batch of one_step().
Result<int64_t> samples_of(const std::string& input);

struct OneStep {
  double loss = 0;
  int64_t samples = 0, classes = 0, params = 0;
};

// Reads weights and norm statistics from Config::init, `x` (N, C, H, W; F32) and `y` (N; I64) from
// `input`. Writes `loss`, `logits`, `grad.NAME` of every parameter (OIHW) and `running.NAME` of
// every norm statistic after the step, all F32, to Config::out. Sizes come from the files.
Result<OneStep> one_step(const Config& config, const std::string& input);

}  // namespace tri
