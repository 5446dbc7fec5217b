#include "ops/stochastic_depth/stochastic_depth.h"

#include "base/philox.h"

namespace tri::ops {

void stochastic_depth_factors(uint64_t seed, uint64_t layer, float rate, const uint64_t* samples,
                              int64_t count, float* factors) noexcept {
  for (int64_t i = 0; i < count; ++i) {
    base::Stream stream(seed, base::Purpose::kStochasticDepth, samples[i], layer);
    factors[i] = stream.uniform() < rate ? 0.0f : 1.0f / (1.0f - rate);
  }
}

}  // namespace tri::ops
