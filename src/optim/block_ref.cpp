#include "optim/block_ref.h"

#include "optim/forms_ref.h"

namespace tri::optim {
size_t BlockRef::open(const Task& task, size_t at) {
  const size_t n = std::min(kBlock, task.begin + task.count - at);
  size_t nonfinite = 0;
  for (size_t i = 0; i < n; ++i) {
    grad[i] = task.grad[at - task.begin + i] * task.coefficients.grad_scale;
    if (!std::isfinite(grad[i])) ++nonfinite;
  }
  for (size_t i = 0; i < kBlock; ++i) weights[i] = load_weight_ref(task.storage, at + i);
  load_moment_ref(task.storage, false, at, first);
  load_moment_ref(task.storage, true, at, second);
  return nonfinite;
}

void BlockRef::close(const Task& task, size_t at) const {
  const NoiseKeys keys(task.noise);
  for (size_t i = 0; i < kBlock; ++i) {
    store_weight_ref(task.storage, at + i, weights[i], keys.weights);
  }
  store_moment_ref(task.storage, false, at, first, keys.first);
  store_moment_ref(task.storage, true, at, second, keys.second);
}

void ChainsRef::add(size_t element, float x) {
  const double wide = x;
  sum[element % kChains] += wide;
  squares[element % kChains] += wide * wide;
  max_abs = std::max(max_abs, std::abs(x));
}

double ChainsRef::total() const {
  double total = 0;
  for (const double chain : sum) total += chain;
  return total;
}

double ChainsRef::total_squares() const {
  double total = 0;
  for (const double chain : squares) total += chain;
  return total;
}

}  // namespace tri::optim
