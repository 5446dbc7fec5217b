#pragma once
// Room: data. Bilinear resize, antialiased when shrinking: the values of PyTorch's
// F.interpolate(mode="bilinear", antialias=True, align_corners=False). Rows come in one by one and
// are added to the output rows they touch, so a large source never has to exist as a whole.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/shape.h"

namespace tri::data {

class Resizer {
 public:
  // REQUIRES: sides >= 1; equal channels.
  Resizer(tensor::Shape src, tensor::Shape dst);

  const tensor::Shape& src() const { return src_; }
  const tensor::Shape& dst() const { return dst_; }
  size_t scratch_floats() const { return static_cast<size_t>(dst_.w * dst_.c); }

  // Adds source row `y` of src().w pixels to `dst` (H, W, C), which is complete after the last row
  // and keeps the scale 0..255. REQUIRES: every row once, from the top; dst need not be cleared.
  // Threads may share a Resizer, each with its own dst and scratch.
  void add_row(int64_t y, const uint8_t* row, float* scratch, float* dst) const noexcept;

 private:
  // The source pixels that one output pixel is a weighted mean of.
  struct Window {
    int64_t first = 0, count = 0;
    size_t weights = 0;  // where its weights begin
  };
  struct Axis {
    Axis(int64_t in, int64_t out);
    std::vector<Window> windows;
    std::vector<float> weights;
  };

  tensor::Shape src_, dst_;
  Axis across_, down_;
  std::vector<int64_t> first_touched_;  // per source row: the first output row whose window has it
};

}  // namespace tri::data
