#include "optim/block_ref.h"

namespace tri::optim {
namespace {

void open_moment(const std::byte* part, size_t at, float* out) {
  if (part != nullptr) std::memcpy(out, part + at * sizeof(float), kBlock * sizeof(float));
}

void close_moment(std::byte* part, size_t at, const float* values) {
  if (part != nullptr) std::memcpy(part + at * sizeof(float), values, kBlock * sizeof(float));
}

}  // namespace

size_t BlockRef::open(const Task& task, size_t at) {
  const size_t n = std::min(kBlock, task.begin + task.count - at);
  size_t nonfinite = 0;
  for (size_t i = 0; i < n; ++i) {
    grad[i] = task.grad[at - task.begin + i] * task.coefficients.grad_scale;
    if (!std::isfinite(grad[i])) ++nonfinite;
  }
  std::memcpy(weights, task.storage.main + at * sizeof(float), sizeof(weights));
  open_moment(task.storage.first, at, first);
  open_moment(task.storage.second, at, second);
  return nonfinite;
}

void BlockRef::close(const Task& task, size_t at) const {
  std::memcpy(task.storage.main + at * sizeof(float), weights, sizeof(weights));
  close_moment(task.storage.first, at, first);
  close_moment(task.storage.second, at, second);
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
