#pragma once
// Room: control. What the governor wants from the next step on. Applied whole, between steps.
#include <cstdint>
#include <string>
#include <vector>

#include "control/precision_table.h"

namespace tri::control {

// One line of a `control` event.
struct Change {
  std::string what;  // "batch", "loss scale", "precision layer1.0.conv1"
  std::string from, to;
  std::string reason;
  bool operator==(const Change&) const = default;
};

// Powers of two that multiply values before they are stored, taken off when they are read.
struct StoreScales {
  double y = 1, gy = 1;
  bool operator==(const StoreScales&) const = default;
};

// How many samples a step takes, how many of them at once, and how much of them it keeps.
struct StepShape {
  int64_t batch = 1;
  int64_t micros = 1;      // micro-batches of a step
  int64_t ghost = 0;       // samples that batch norm sees together; 0: all of a micro-batch
  bool recompute = false;  // blocks may be made again in the backward pass, as few as suffice
  bool operator==(const StepShape&) const = default;
};

struct Decision : StepShape {
  PrecisionTable table;              // by layer
  std::vector<StoreScales> scales;   // by layer
  double loss_scale = 1;             // on the loss; gradients are given without it
  std::vector<double> step_factors;  // of the rate, by layer, at the rate of the window
  int64_t blocks = 0;                // that are made again
  bool diverged = false;             // nothing is left to try
  std::vector<Change> changes;
  bool operator==(const Decision&) const = default;
};

}  // namespace tri::control
