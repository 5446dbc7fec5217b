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

size_t sums_bytes(int64_t size);

// a . b; `room`: sums_bytes(size).
double dot(const float* a, const float* b, int64_t size, double* room, base::ThreadPool& pool);
// y = scale * y + x_scale * x.
void combine(double scale, float* y, double x_scale, const float* x, int64_t size,
             base::ThreadPool& pool);

// copy = the parameters as the network sees them + factor * direction.
void perturb(const StepRun& run, const LayerVector& layer, float factor, const float* direction,
             float* copy);

// Half the length along a unit vector over which gradients are compared. Central differences of
// numbers with a relative error u are best near cbrt(u) of the length over which the function
// bends: here u = 2^-24, and the length is the spectral norm of a random matrix with the weight's
// size and norm, sigma (sqrt(rows) + sqrt(columns)). `copy`: the unperturbed parameters.
float difference_step(const StepRun& run, const LayerVector& layer, const float* copy,
                      double* room);

}  // namespace tri::exec
