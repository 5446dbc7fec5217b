#include "exec/curvature/patch_rows.h"

#include <algorithm>

namespace tri::exec {
namespace {

void fill_rows(float* dst, int64_t stride, int64_t rows, int64_t channels) {
  for (int64_t i = 0; i < rows; ++i) std::fill_n(dst + i * stride, channels, 0.0f);
}

ops::Stored sample_of(ops::Stored stored, int64_t n) {
  stored.data = static_cast<const std::byte*>(stored.data) +
                static_cast<size_t>(n * stored.pixels * stored.row_stride) *
                    numeric::storage_bytes(stored.format);
  return stored;
}

}  // namespace

void load_patches(const ops::ConvGeometry& g, const ops::Source& x, int64_t sample, int64_t first,
                  int64_t count, const PatchRange& range, float* dst, int64_t stride) {
  const int64_t in = g.group_in();
  for (int64_t at = range.begin; at < range.end;) {
    const int64_t tap = at / in, channel = at % in;
    const int64_t channels = std::min(in - channel, range.end - at);
    const int64_t shift_y = tap / g.kernel_w - g.padding_h;
    const int64_t shift_x = tap % g.kernel_w - g.padding_w;
    for (int64_t i = 0; i < count;) {
      const int64_t out_y = (first + i) / g.out.w, out_x = (first + i) % g.out.w;
      const int64_t left = std::min(count - i, g.out.w - out_x);  // of this row of the output
      const int64_t y = out_y * g.stride_h + shift_y, from = out_x * g.stride_w + shift_x;
      float* to = dst + i * stride + (at - range.begin);
      int64_t some = left;
      if (y < 0 || y >= g.in.h || from >= g.in.w) {
        fill_rows(to, stride, some, channels);
      } else if (from < 0) {
        some = std::min(left, (-from + g.stride_w - 1) / g.stride_w);
        fill_rows(to, stride, some, channels);
      } else {
        some = g.stride_w == 1 ? std::min(left, g.in.w - from) : 1;
        ops::load_rows(x, {sample, y * g.in.w + from, some, range.group * in + channel, channels},
                       to, stride);
      }
      i += some;
    }
    at += channels;
  }
}

ops::Source sample_of(ops::Source source, int64_t n) {
  const int64_t ghost = n / source.norm.ghost * source.norm.stride;
  if (source.norm.scale != nullptr) {
    source.norm.scale += ghost;
    source.norm.shift += ghost;
  }
  if (source.channel_factor != nullptr) source.channel_factor += n * source.stored.channels;
  if (source.sample_factor != nullptr) source.sample_factor += n;
  source.stored = sample_of(source.stored, n);
  return source;
}

// REQUIRES: frozen statistics.
ops::GradSource sample_of(ops::GradSource source, int64_t n) {
  source.grad = sample_of(source.grad, n);
  source.value = sample_of(source.value, n);
  return source;
}

}  // namespace tri::exec
