#pragma once
// Room: train. Images and labels of no data set, for steps that are only timed.
#include <cstdint>

#include "exec/engine.h"

namespace tri::train {

void make_up(const exec::BatchRoom& room, int64_t classes, uint64_t seed);

}  // namespace tri::train
