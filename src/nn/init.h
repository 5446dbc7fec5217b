#pragma once
// Room: nn. First values of parameters, in PyTorch's layout and by the distributions that the
// model's recipe asked for. The numbers depend on the seed and the parameter's index alone.
#include <cstddef>
#include <cstdint>
#include <span>

#include "nn/model.h"

namespace tri::nn {

// Draws parameter `index` of `model`. REQUIRES: values.size() == parameters[index].elements().
void draw_initial(const Model& model, size_t index, uint64_t seed, std::span<float> values);

}  // namespace tri::nn
