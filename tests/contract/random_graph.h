#pragma once
// Small networks nobody would draw by hand: every operation reads any tensor there is, so that
// values have many readers, sums share gradients and transforms meet in any order.
#include <cstdint>
#include <memory>

#include "nn/model.h"

namespace tri::contract {

// Networks of these seeds and larger ones squeeze and excite as real ones do, on maps of 64 pixels
// and more, where that has passes of its own.
inline constexpr uint64_t kExcitedSeeds = 1000;

// The same network for the same seed. All operations but the loss occur.
std::shared_ptr<const nn::Model> random_network(uint64_t seed);

}  // namespace tri::contract
