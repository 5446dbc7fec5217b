#pragma once
// Room: ops. Stochastic depth drops a whole residual branch per sample: a factor 0 or 1 / (1 -
// rate) that the load transform applies (Source::sample_factor), forward and backward. Drawn from
// (seed, sample, layer), so it does not depend on the batch.
#include <cstdint>

namespace tri::ops {

// factors[i] for `count` samples; `samples` are their identities in their epoch. rate < 1.
void stochastic_depth_factors(uint64_t seed, uint64_t layer, float rate, const uint64_t* samples,
                              int64_t count, float* factors) noexcept;

}  // namespace tri::ops
