#pragma once
// Room: ops. One panel of dense weights as kernels that gather read it, in fp32 numbers or in pairs
// of bf16 (Note [Units] in pair_kernel.h): as it lies for the forward pass, turned round for the
// way back.
#include <cstdint>
#include <vector>

#include "ops/conv2d/conv_geometry.h"
#include "ops/conv2d/pair_kernel.h"
#include "ops/rows/weights.h"

namespace tri::ops {

// Taps that are not `used`, in the order of the result, are left out; null: all are.

// 16 output channels, [tap][input channel][16]. `scratch`, room for a panel, is used where the
// weights cannot be read in place.
const float* forward_panel(const ConvGeometry& geometry, const Weights& weights, int64_t group,
                           int64_t panel, const std::vector<bool>* used, float* scratch,
                           Products products = Products::kF32) noexcept;

// 16 input channels, [tap from the last][output channel][16], in `scratch`.
const float* backward_panel(const ConvGeometry& geometry, const Weights& weights, int64_t group,
                            int64_t panel, const std::vector<bool>* used, float* scratch,
                            Products products = Products::kF32) noexcept;

}  // namespace tri::ops
