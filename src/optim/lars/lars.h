#pragma once
// Room: optim. LARS (You et al., 2017): SGD whose gradient is scaled by the layer's trust ratio.
// Its kernel is sgd's.
#include "optim/update.h"

namespace tri::optim {

double lars_trust(const Hyper& hyper, const Norms& norms);

}  // namespace tri::optim
