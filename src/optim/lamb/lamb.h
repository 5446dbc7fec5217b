#pragma once
// Room: optim. LAMB (You et al., 2019): Adam's direction plus decay, scaled to the weight's norm.
#include "optim/update.h"

namespace tri::optim {

double lamb_trust(const Norms& norms);

}  // namespace tri::optim
