#pragma once
// Room: ops. Convolution as its definition says, in double precision: the judge of the kernels.
// Tensors NHWC and weights OIHW, all fp32, any stride, padding, groups.
#include <cstdint>

#include "ops/conv2d/conv_geometry.h"

namespace tri::ops::reference {

void conv_forward(const ConvGeometry& geometry, int64_t samples, const float* x, const float* oihw,
                  const float* bias, double* y);
void conv_backward_data(const ConvGeometry& geometry, int64_t samples, const float* dy,
                        const float* oihw, double* dx);
void conv_backward_weights(const ConvGeometry& geometry, int64_t samples, const float* x,
                           const float* dy, double* d_oihw);

}  // namespace tri::ops::reference
