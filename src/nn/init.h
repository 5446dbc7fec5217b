#pragma once
// Room: nn. First values of parameters, in PyTorch's layout and by the distributions that the
// model's recipe asked for. The numbers depend on the seed and the parameter's index alone.
#include <cstddef>
#include <cstdint>
#include <span>

#include "nn/model.h"

namespace tri::nn {

// Draws elements [first, first + values.size()) of parameter `index` of `model`; the whole in any
// pieces gives the same numbers.
void draw_initial(const Model& model, size_t index, uint64_t seed, std::span<float> values,
                  size_t first = 0);

}  // namespace tri::nn
