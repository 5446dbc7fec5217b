#pragma once
// Room: optim. One element or one block of every storage form, by the scalar references of numeric.
#include <cstddef>

#include "numeric/noise.h"
#include "optim/storage.h"

namespace tri::optim {

float load_weight_ref(const ParamStorage& storage, size_t i);
// `key` is used by kBf16Stochastic alone.
void store_weight_ref(const ParamStorage& storage, size_t i, float w, numeric::NoiseKey key);

// A block of a moment; zeros where there is none. `second` chooses which.
void load_moment_ref(const ParamStorage& storage, bool second, size_t at, float* block);
void store_moment_ref(const ParamStorage& storage, bool second, size_t at, const float* block,
                      numeric::NoiseKey key);

}  // namespace tri::optim
