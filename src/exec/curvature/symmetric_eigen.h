#pragma once
// Room: exec. Eigenvalues of small symmetric matrices, by Eigen. The memory is taken when the
// solver is made; solving allocates nothing.
#include <cstdint>
#include <memory>
#include <span>

namespace tri::exec {

class SymmetricEigen {
 public:
  explicit SymmetricEigen(int64_t size);
  ~SymmetricEigen();

  // The largest values.size() eigenvalues of factor * matrix (size, size), descending; zeros where
  // there are no more, infinity where the matrix is not finite. Only the lower triangle, row >=
  // column of row-major order, is read.
  void largest(std::span<const double> matrix, double factor, std::span<double> values) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tri::exec
