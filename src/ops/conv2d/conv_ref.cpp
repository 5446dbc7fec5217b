#include "ops/conv2d/conv_ref.h"

#include <algorithm>

namespace tri::ops::reference {
namespace {

// Calls visit(x index, weight index, y index) for every multiply-add with a real pixel.
template <class Visit>
void for_each_product(const ConvGeometry& g, int64_t samples, Visit visit) {
  const int64_t in = g.group_in(), out = g.group_out();
  for (int64_t n = 0; n < samples; ++n)
    for (int64_t oy = 0; oy < g.out.h; ++oy)
      for (int64_t ox = 0; ox < g.out.w; ++ox)
        for (int64_t o = 0; o < g.out.c; ++o)
          for (int64_t ky = 0; ky < g.kernel_h; ++ky)
            for (int64_t kx = 0; kx < g.kernel_w; ++kx) {
              const int64_t iy = oy * g.stride_h + ky - g.padding_h;
              const int64_t ix = ox * g.stride_w + kx - g.padding_w;
              if (iy < 0 || iy >= g.in.h || ix < 0 || ix >= g.in.w) continue;
              for (int64_t i = 0; i < in; ++i)
                visit(((n * g.in.h + iy) * g.in.w + ix) * g.in.c + o / out * in + i,
                      ((o * in + i) * g.kernel_h + ky) * g.kernel_w + kx,
                      ((n * g.out.h + oy) * g.out.w + ox) * g.out.c + o);
            }
}

}  // namespace

void conv_forward(const ConvGeometry& g, int64_t samples, const float* x, const float* oihw,
                  const float* bias, double* y) {
  for (int64_t i = 0; i < samples * g.out.elements(); ++i)
    y[i] = bias == nullptr ? 0.0 : double{bias[i % g.out.c]};
  for_each_product(g, samples, [&](int64_t xi, int64_t wi, int64_t yi) {
    y[yi] += double{x[xi]} * double{oihw[wi]};
  });
}

void conv_backward_data(const ConvGeometry& g, int64_t samples, const float* dy, const float* oihw,
                        double* dx) {
  std::fill_n(dx, samples * g.in.elements(), 0.0);
  for_each_product(g, samples, [&](int64_t xi, int64_t wi, int64_t yi) {
    dx[xi] += double{dy[yi]} * double{oihw[wi]};
  });
}

void conv_backward_weights(const ConvGeometry& g, int64_t samples, const float* x, const float* dy,
                           double* d_oihw) {
  std::fill_n(d_oihw, g.out.c * g.group_in() * g.taps(), 0.0);
  for_each_product(g, samples, [&](int64_t xi, int64_t wi, int64_t yi) {
    d_oihw[wi] += double{x[xi]} * double{dy[yi]};
  });
}

}  // namespace tri::ops::reference
