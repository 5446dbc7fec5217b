#pragma once
// Room: optim. What a rule's folder provides: an update and a measure, each as a SIMD kernel and as
// a scalar reference that gives the same bits. Contracts in update.h.
#include "numeric/noise.h"
#include "optim/update.h"

namespace tri::optim {

struct Task {
  const Coefficients& coefficients;
  const ParamStorage& storage;
  size_t begin;
  size_t count;
  const float* grad;  // of element `begin`
  Noise noise;
};

#define TRI_RULE_KERNELS(kernel)                            \
  GradStats kernel##_update(const Task& task) noexcept;     \
  Norms kernel##_measure(const Task& task) noexcept;        \
  GradStats kernel##_update_ref(const Task& task) noexcept; \
  Norms kernel##_measure_ref(const Task& task) noexcept;

TRI_RULE_KERNELS(sgd)
TRI_RULE_KERNELS(adam)
TRI_RULE_KERNELS(lamb)
#undef TRI_RULE_KERNELS

// One stream of noise per part that may be rounded stochastically.
struct NoiseKeys {
  explicit NoiseKeys(const Noise& noise)
      : weights(numeric::noise_key(noise.seed, noise.step, uint64_t{noise.tensor} * 4)),
        first(numeric::noise_key(noise.seed, noise.step, uint64_t{noise.tensor} * 4 + 1)),
        second(numeric::noise_key(noise.seed, noise.step, uint64_t{noise.tensor} * 4 + 2)) {}

  numeric::NoiseKey weights, first, second;
};

// Sums of a gradient run in this many interleaved chains (element number modulo kChains) and the
// chains are added in order at the end: one order for all vector widths.
inline constexpr size_t kChains = 8;

}  // namespace tri::optim
