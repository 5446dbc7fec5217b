#pragma once
// Room: exec. In: what a weight layer read and the gradient of what it made. Out: the inner
// products of the weight's per-sample gradients dW_i = sum over positions t of a_it (outer) g_it.
//
// Note [Two ways to a Gram matrix]. With b samples, T positions, patches of p numbers and d output
// channels (per group):
//   direct: dW_i for all samples, a chunk of the weight at a time, then their products:
//           b T p d + b^2 p d / 2 multiply-adds;
//   ghost:  dW_i . dW_j = sum over t, s of (a_it . a_js) (g_it . g_js): (b T)^2 (p + d) / 2, and no
//           gradient at all. T = 1, a linear layer, is the product of two Gram matrices.
// The cheaper one is taken. Both are sums of the same terms. Depthwise weights are small enough to
// keep every sample's gradient whole.
#include <cstddef>
#include <cstdint>
#include <optional>

#include "exec/curvature/row_gram.h"
#include "ops/conv2d/depthwise_grad.h"
#include "ops/rows/rows.h"

namespace tri::exec {

class WeightGram {
 public:
  enum class Form : uint8_t { kDirect, kGhost, kDepthwise };

  WeightGram(const ops::ConvGeometry& geometry, int64_t samples, size_t threads);
  // As above with the form of one's choice. REQUIRES: kDepthwise iff the geometry is.
  WeightGram(const ops::ConvGeometry& geometry, int64_t samples, size_t threads, Form form);

  Form form() const { return form_; }
  size_t scratch_bytes() const;

  // gram[i * samples + j] += dW_i . dW_j for i >= j. REQUIRES: frozen statistics.
  void add(const ops::Source& x, const ops::GradSource& d, double* gram, std::byte* scratch,
           base::ThreadPool& pool) const;

 private:
  struct Room;
  int64_t positions() const { return geometry_.out.pixels(); }
  int64_t patch() const { return geometry_.taps() * geometry_.group_in(); }
  size_t matrix_floats() const;
  size_t worker_floats() const;
  void add_direct(int64_t group, const ops::Source& x, const ops::GradSource& d, double* gram,
                  const Room& room, base::ThreadPool& pool) const;
  void add_ghost(int64_t group, const ops::Source& x, const ops::GradSource& d, double* gram,
                 const Room& room, base::ThreadPool& pool) const;
  void add_depthwise(const ops::Source& x, const ops::GradSource& d, double* gram, const Room& room,
                     base::ThreadPool& pool) const;

  ops::ConvGeometry geometry_;
  int64_t samples_;
  size_t threads_;
  Form form_;
  RowGram products_;                            // of samples, or of positions (ghost)
  std::optional<ops::DepthwiseGradPlan> each_;  // of one sample
  // Chunks: panels of outer_rows() patch elements and of 16 output channels (direct), columns of
  // patches or of gradients (ghost), and positions that a worker packs at a time.
  int64_t patch_panels_ = 0, out_panels_ = 0, columns_ = 0, strip_ = 0;
};

}  // namespace tri::exec
