#pragma once
// Room: exec. What a curvature pass is asked and what it tells. An estimator is a step plan whose
// ticks fill a CurvatureReport (fisher_ticks.cpp, hessian_ticks.cpp): it is priced, placed and run
// like training. Per layer means per row of the precision table: a weight with the bias and the
// norms that follow it.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tri::exec {

enum class Estimator : uint8_t {
  kNone,     // no curvature pass: training or evaluation
  kFisher,   // Gram matrix of per-sample gradients, labels drawn from the model
  kHessian,  // power iteration on Hessian-vector products, true labels
};

struct CurvatureSpec {
  Estimator estimator = Estimator::kNone;
  int64_t samples = 32;
  bool shrinks = true;  // to what fits beside training; false: at any price
  size_t top = 5;       // eigenvalues per layer
  // fisher: a second pass with true labels, for CurvatureReport::noise.
  bool noise = true;
  // hessian: an eigenvalue is done when |Hv - lambda v| <= tolerance |lambda|, or after so many
  // products.
  int64_t iterations = 3;
  double tolerance = 1e-2;

  bool operator==(const CurvatureSpec&) const = default;
};

struct LayerCurvature {
  std::vector<double> eigenvalues;  // descending; hessian: those of largest magnitude, with sign
  double trace = 0.0;               // fisher only
  int64_t products = 0;             // hessian only: Hessian-vector products spent
};

// From per-sample gradients g_i of the whole network under true labels (McCandlish et al., 2018).
struct GradientNoise {
  std::vector<double> squared_norms;  // |g_i|^2
  double variance = 0.0;              // tr Sigma, unbiased
  double squared_mean = 0.0;          // |G|^2, unbiased; can come out negative
  double scale = 0.0;                 // tr Sigma / |G|^2; infinite where |G|^2 is not positive
};

struct CurvatureReport {
  int64_t samples = 0;  // of the pass; fewer than asked for where the plan had no room
  double loss = 0.0;    // mean under true labels, statistics frozen
  std::vector<LayerCurvature> layers;
  GradientNoise noise;
};

}  // namespace tri::exec
