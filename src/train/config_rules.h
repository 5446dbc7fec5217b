#pragma once
// Room: train. What options mean for each other. In: a Config whose values are each in range. Out:
// values that follow from others, or the sentence why two do not go together.
#include <cstdint>

#include "tri/config.h"
#include "tri/result.h"

namespace tri::train {

// The largest divisor that is <= 32: enough samples for batch norm, and every batch is a multiple.
int64_t default_ghost_batch(int64_t batch);

// Fills what Config marks with + and the user left open.
void derive(Config& config);

// REQUIRES: derive() was called. Fails with kInvalid.
Result<void> check_together(const Config& config);

}  // namespace tri::train
