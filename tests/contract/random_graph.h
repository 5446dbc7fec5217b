#pragma once
// Small networks nobody would draw by hand: every operation reads any tensor there is, so that
// values have many readers, sums share gradients and transforms meet in any order.
#include <cstdint>
#include <memory>

#include "nn/model.h"

namespace tri::contract {

// The same network for the same seed. All operations but the loss occur.
std::shared_ptr<const nn::Model> random_network(uint64_t seed);

}  // namespace tri::contract
