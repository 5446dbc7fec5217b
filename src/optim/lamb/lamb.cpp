#include "optim/lamb/lamb.h"

#include <cmath>

namespace tri::optim {

double lamb_trust(const Norms& norms) {
  if (norms.weight_squares == 0 || norms.direction_squares == 0) return 1;
  return std::sqrt(norms.weight_squares / norms.direction_squares);
}

}  // namespace tri::optim
