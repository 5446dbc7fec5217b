#include "optim/lars/lars.h"

#include <cmath>

namespace tri::optim {

double lars_trust(const Hyper& hyper, const Norms& norms) {
  const double weight = std::sqrt(norms.weight_squares);
  const double grad = std::sqrt(norms.direction_squares);
  // A layer at zero, or without gradient, has no ratio: it steps as plain SGD would.
  if (weight == 0 || grad == 0) return 1;
  return hyper.trust * weight / (grad + hyper.weight_decay * weight + hyper.eps);
}

}  // namespace tri::optim
