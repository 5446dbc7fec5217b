#pragma once
// Room: exec. All parameters of one layer as one vector of fp32, in storage order: what power
// iteration turns. Sums are cut into fixed tiles and joined in double precision, in order.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "exec/step_run.h"

namespace tri::exec {

struct LayerPart {
  size_t parameter;
  int64_t offset;  // in the vector
};

struct LayerVector {
  int layer = -1;
  std::vector<LayerPart> parts;
  int64_t size = 0;
  // Ticks of the plan that a change of these parameters touches: forward, and then the loss and
  // backward down to their gradients.
  std::vector<size_t> forward, backward;
};

// `room` of the sums below.
size_t sums_bytes(const LayerVector& layer);

double dot(const float* a, const float* b, int64_t size, double* room, base::ThreadPool& pool);
// y += factor * x.
void add_scaled(double factor, const float* x, float* y, int64_t size, base::ThreadPool& pool);

// w: the layer's parameters as the network sees them.
// moved = w + factor * direction.
void move(const StepRun& run, const LayerVector& layer, float factor, const float* direction,
          float* moved);
// moved = w - (moved - w).
void reflect(const StepRun& run, const LayerVector& layer, float* moved);

// With d = w - moved: a direction need not be kept once the parameters have moved along it.
struct MovedSums {
  double squares = 0;  // d . d
  double along = 0;    // d . x
};
MovedSums moved_sums(const StepRun& run, const LayerVector& layer, const float* moved,
                     const float* x, double* room);

// Half the length along a unit vector over which gradients are compared. Central differences of
// numbers with a relative error u are best near cbrt(u) of the length over which the function
// bends: here u = 2^-24, and the length is the spectral norm of a random matrix with the weight's
// size and norm, sigma (sqrt(rows) + sqrt(columns)).
float difference_step(const StepRun& run, const LayerVector& layer, double* room);

}  // namespace tri::exec
