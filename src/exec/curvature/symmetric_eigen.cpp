#include "exec/curvature/symmetric_eigen.h"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace tri::exec {

struct SymmetricEigen::State {
  explicit State(int64_t size) : matrix(size, size), solver(size) {}
  Eigen::MatrixXd matrix;
  Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver;
};

SymmetricEigen::SymmetricEigen(int64_t size) : state_(std::make_unique<State>(size)) {}
SymmetricEigen::~SymmetricEigen() = default;

void SymmetricEigen::largest(std::span<const double> matrix, double factor,
                             std::span<double> values) const {
  Eigen::MatrixXd& whole = state_->matrix;
  const Eigen::Index size = whole.rows();
  TRI_CHECK(matrix.size() == static_cast<size_t>(size * size), "{} elements", matrix.size());
  bool finite = true;
  for (Eigen::Index i = 0; i < size; ++i)
    for (Eigen::Index j = 0; j <= i; ++j) {
      whole(i, j) = factor * matrix[static_cast<size_t>(i * size + j)];
      finite = finite && std::isfinite(whole(i, j));
    }
  std::ranges::fill(values, 0.0);
  if (!finite) {
    std::ranges::fill(values, std::numeric_limits<double>::infinity());
    return;
  }
  state_->solver.compute(whole, Eigen::EigenvaluesOnly);
  const auto& all = state_->solver.eigenvalues();  // ascending
  const auto count = std::min<Eigen::Index>(size, static_cast<Eigen::Index>(values.size()));
  for (Eigen::Index k = 0; k < count; ++k) values[static_cast<size_t>(k)] = all[size - 1 - k];
}

}  // namespace tri::exec
