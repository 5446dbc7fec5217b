#pragma once
// Room: tensor. How many numbers, in which order: N samples of H x W pixels of C channels, channels
// innermost (NHWC). A vector per sample is 1 x 1 x C. No bytes, no math.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace tri::tensor {

// One sample. The number of samples is the planner's business, so it is kept apart.
struct Shape {
  int64_t h = 1, w = 1, c = 1;

  int64_t pixels() const { return h * w; }
  int64_t elements() const { return h * w * c; }
  bool operator==(const Shape&) const = default;
  std::string text() const { return fmt::format("{}x{}x{} (HWC)", h, w, c); }
};

}  // namespace tri::tensor
