#pragma once
// Room: train. The largest batch that a ceiling allows, whatever was asked for. In: an engine to
// ask for prices, what the process holds besides, and the ceiling. Out: samples.
#include <cstdint>

#include "exec/engine.h"
#include "train/step_pricing.h"
#include "tri/config.h"
#include "tri/result.h"

namespace tri::train {

// A multiple of the ghost batch with which the process stays within `ceiling`; 0 if there is none.
Result<int64_t> largest_batch(const Config& config, const exec::Engine& engine,
                              const Besides& besides, uint64_t ceiling);

}  // namespace tri::train
