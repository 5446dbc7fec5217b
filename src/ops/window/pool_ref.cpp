#include "ops/window/pool_ref.h"

#include <algorithm>
#include <cmath>

namespace tri::ops::reference {
namespace {

struct Range {
  int64_t begin, end;  // real pixels
  int64_t padded;      // pixels and padding
};

Range range_of(int64_t o, int64_t in, int64_t kernel, int64_t stride, int64_t padding) {
  const int64_t begin = o * stride - padding, end = std::min(begin + kernel, in + padding);
  return {std::max<int64_t>(begin, 0), std::min(end, in), end - begin};
}

// Calls visit(output index, rows, columns, sample, channel) for every output.
template <class Visit>
void for_each_output(const Window& w, int64_t samples, Visit visit) {
  for (int64_t n = 0; n < samples; ++n)
    for (int64_t oy = 0; oy < w.out.h; ++oy)
      for (int64_t ox = 0; ox < w.out.w; ++ox)
        for (int64_t c = 0; c < w.out.c; ++c)
          visit(((n * w.out.h + oy) * w.out.w + ox) * w.out.c + c,
                range_of(oy, w.in.h, w.kernel_h, w.stride_h, w.padding_h),
                range_of(ox, w.in.w, w.kernel_w, w.stride_w, w.padding_w), n, c);
}

int64_t input_index(const Window& w, int64_t n, int64_t pixel, int64_t c) {
  return (n * w.in.pixels() + pixel) * w.in.c + c;
}

// Calls visit(output index, input index, divisor) for every pixel of every window.
template <class Visit>
void for_each_share(const Window& w, bool count_include_pad, int64_t samples, Visit visit) {
  for_each_output(w, samples, [&](int64_t o, Range rows, Range columns, int64_t n, int64_t c) {
    const int64_t real = (rows.end - rows.begin) * (columns.end - columns.begin);
    const int64_t divisor = count_include_pad ? rows.padded * columns.padded : real;
    for (int64_t y = rows.begin; y < rows.end; ++y)
      for (int64_t x = columns.begin; x < columns.end; ++x)
        visit(o, input_index(w, n, y * w.in.w + x, c), static_cast<double>(divisor));
  });
}

}  // namespace

void max_pool_forward(const Window& w, int64_t samples, const float* x, double* y, int64_t* index) {
  for_each_output(w, samples, [&](int64_t o, Range rows, Range columns, int64_t n, int64_t c) {
    index[o] = -1;
    for (int64_t iy = rows.begin; iy < rows.end; ++iy)
      for (int64_t ix = columns.begin; ix < columns.end; ++ix) {
        const double value = double{x[input_index(w, n, iy * w.in.w + ix, c)]};
        if (index[o] >= 0 && !(value > y[o]) && !std::isnan(value)) continue;
        y[o] = value;
        index[o] = iy * w.in.w + ix;
      }
  });
}

void max_pool_backward(const Window& w, int64_t samples, const float* dy, const int64_t* index,
                       double* dx) {
  std::fill_n(dx, samples * w.in.elements(), 0.0);
  for_each_output(w, samples, [&](int64_t o, Range, Range, int64_t n, int64_t c) {
    dx[input_index(w, n, index[o], c)] += double{dy[o]};
  });
}

void avg_pool_forward(const Window& w, bool count_include_pad, int64_t samples, const float* x,
                      double* y) {
  std::fill_n(y, samples * w.out.elements(), 0.0);
  for_each_share(w, count_include_pad, samples,
                 [&](int64_t o, int64_t i, double divisor) { y[o] += double{x[i]} / divisor; });
}

void avg_pool_backward(const Window& w, bool count_include_pad, int64_t samples, const float* dy,
                       double* dx) {
  std::fill_n(dx, samples * w.in.elements(), 0.0);
  for_each_share(w, count_include_pad, samples,
                 [&](int64_t o, int64_t i, double divisor) { dx[i] += double{dy[o]} / divisor; });
}

}  // namespace tri::ops::reference
