#pragma once
// Room: ops, for tests only. The windows that every pooling is tested on.
#include <string>
#include <vector>

#include "base/philox.h"
#include "ops/op.h"
#include "ops/rows/rows.h"
#include "ops/window/window_plan.h"

namespace tri::ops {

struct PoolCase {
  std::string name;
  Shape in;
  int64_t kernel_h, kernel_w, stride, padding;
  bool ceil_mode;
  int64_t samples;

  Window window() const {
    Attributes a;
    a.kernel_h = kernel_h;
    a.kernel_w = kernel_w;
    a.stride_h = a.stride_w = stride;
    a.padding_h = a.padding_w = padding;
    a.ceil_mode = ceil_mode;
    return window_of(a, in, infer(OpKind::kMaxPool, a, {&in, 1}).value());
  }
};

// Odd sizes on purpose: channels that fill no vector, windows that overhang, overlap or skip.
inline const std::vector<PoolCase> kPoolCases = {
    {"stem", {13, 14, 21}, 3, 3, 2, 1, false, 3},   {"halves", {8, 6, 16}, 2, 2, 2, 0, false, 2},
    {"overhang", {7, 9, 5}, 2, 3, 2, 1, true, 3},   {"squeeze", {11, 13, 37}, 3, 3, 2, 0, true, 2},
    {"dense", {6, 7, 8}, 3, 3, 1, 1, false, 1},     {"skips", {10, 11, 3}, 2, 2, 3, 0, true, 4},
    {"large", {9, 9, 70}, 5, 5, 2, 2, false, 2},    {"one", {1, 1, 1}, 1, 1, 1, 0, false, 1},
    {"strips", {75, 40, 72}, 3, 3, 2, 1, false, 1},
};

inline std::vector<float> pool_draws(uint64_t seed, int64_t count) {
  base::Stream stream(seed, base::Purpose::kInit);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = 2.0f * stream.uniform() - 1.0f;
  return values;
}

inline Stored pool_stored(const void* data, Format format, const Shape& s) {
  return {data, format, s.c, s.c, s.pixels()};
}

}  // namespace tri::ops
