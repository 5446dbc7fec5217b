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

struct Decision {
  PrecisionTable table;             // by layer
  std::vector<StoreScales> scales;  // by layer
  int64_t batch = 0;
  int64_t micros = 1;     // micro-batches of a step
  double loss_scale = 1;  // on the loss; gradients are given without it
  bool diverged = false;  // nothing is left to try
  std::vector<Change> changes;
  bool operator==(const Decision&) const = default;
};

}  // namespace tri::control
