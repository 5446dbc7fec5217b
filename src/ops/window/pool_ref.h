#pragma once
// Room: ops. Pooling as its definition says, in double precision and with PyTorch's corners: the
// judge of the kernels. Tensors NHWC, fp32.
#include <cstdint>

#include "ops/window/window_plan.h"

namespace tri::ops::reference {

// `index`: pixel of the input that won, or -1 for none.
void max_pool_forward(const Window& window, int64_t samples, const float* x, double* y,
                      int64_t* index);
void max_pool_backward(const Window& window, int64_t samples, const float* dy, const int64_t* index,
                       double* dx);
void avg_pool_forward(const Window& window, bool count_include_pad, int64_t samples, const float* x,
                      double* y);
void avg_pool_backward(const Window& window, bool count_include_pad, int64_t samples,
                       const float* dy, double* dx);

}  // namespace tri::ops::reference
