#include "data/resize.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace tri::data {

Resizer::Axis::Axis(int64_t in, int64_t out) {
  TRI_CHECK(in >= 1 && out >= 1, "in = {}, out = {}", in, out);
  const float scale = static_cast<float>(in) / static_cast<float>(out);
  const float support = std::max(scale, 1.0f);  // the triangle's half width, in source pixels
  windows.reserve(static_cast<size_t>(out));
  for (int64_t i = 0; i < out; ++i) {
    const float centre = scale * (static_cast<float>(i) + 0.5f);
    const auto first = std::max<int64_t>(static_cast<int64_t>(centre - support + 0.5f), 0);
    const auto end = std::min(static_cast<int64_t>(centre + support + 0.5f), in);
    windows.push_back({first, end - first, weights.size()});
    float total = 0;
    for (int64_t at = first; at < end; ++at) {
      const float distance = (static_cast<float>(at) - centre + 0.5f) / support;
      weights.push_back(std::max(1.0f - std::abs(distance), 0.0f));
      total += weights.back();
    }
    for (size_t at = windows.back().weights; at < weights.size(); ++at) weights[at] /= total;
  }
}

Resizer::Resizer(tensor::Shape src, tensor::Shape dst)
    : src_(src), dst_(dst), across_(src.w, dst.w), down_(src.h, dst.h) {
  TRI_CHECK(src.c == dst.c, "channels {} and {}", src.c, dst.c);
  int64_t touched = 0;
  for (int64_t y = 0; y < src.h; ++y) {
    const auto passed = [&](const Window& window) { return window.first + window.count <= y; };
    while (touched + 1 < dst.h && passed(down_.windows[static_cast<size_t>(touched)])) ++touched;
    first_touched_.push_back(touched);
  }
}

void Resizer::add_row(int64_t y, const uint8_t* row, float* scratch, float* dst) const noexcept {
  const auto channels = static_cast<size_t>(dst_.c);
  float* out = scratch;
  for (const Window& window : across_.windows) {
    const float* weight = across_.weights.data() + window.weights;
    const uint8_t* from = row + static_cast<size_t>(window.first) * channels;
    for (size_t c = 0; c < channels; ++c) {
      float sum = 0;
      for (size_t at = 0; at < static_cast<size_t>(window.count); ++at) {
        sum += weight[at] * static_cast<float>(from[at * channels + c]);
      }
      *out++ = sum;
    }
  }

  const size_t width = scratch_floats();
  for (int64_t to = first_touched_[static_cast<size_t>(y)]; to < dst_.h; ++to) {
    const Window& window = down_.windows[static_cast<size_t>(to)];
    if (window.first > y) break;
    if (y >= window.first + window.count) continue;
    const float weight = down_.weights[window.weights + static_cast<size_t>(y - window.first)];
    float* target = dst + static_cast<size_t>(to) * width;
    if (y == window.first) {
      for (size_t i = 0; i < width; ++i) target[i] = weight * scratch[i];
    } else {
      for (size_t i = 0; i < width; ++i) target[i] += weight * scratch[i];
    }
  }
}

}  // namespace tri::data
