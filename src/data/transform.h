#pragma once
// Room: data. In: the bytes of one record. Out: the numbers a network sees: cropped, mirrored,
// resized, normalised, with a blank square. Chance depends on (seed, epoch, index) alone.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/augment.h"
#include "data/normalise.h"
#include "data/resize.h"
#include "tensor/shape.h"

namespace tri::data {

class Transform {
 public:
  // REQUIRES: src.c == dst.c, or src.c == 1 (grey is repeated in every channel of dst);
  // one mean and deviation per channel of src.
  Transform(tensor::Shape src, tensor::Shape dst, const Normalisation& normalisation,
            const Augment& augment, uint64_t seed);

  // Crop and mirror act in pixels of src, which is cheaper than after a resize; the square of
  // cutout keeps its share of the image. Threads may share a Transform.
  // REQUIRES: pixels (H, W, C) of src, out (H, W, C) of dst, scratch_floats() of scratch.
  void apply(const uint8_t* pixels, uint64_t epoch, uint64_t index, float* out,
             std::span<float> scratch) const noexcept;

  size_t scratch_floats() const;

 private:
  void blank(int64_t centre_y, int64_t centre_x, float* out) const noexcept;

  tensor::Shape src_, dst_;
  Augment augment_;
  uint64_t seed_;
  std::vector<float> scale_, shift_;  // of a row of src, channel by channel
  std::optional<Resizer> resizer_;    // where sizes differ; one channel for grey
};

}  // namespace tri::data
