#include "data/transform.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/philox.h"
#include "simd/scaled_bytes.h"

namespace tri::data {
namespace {

// What chance decided for one image.
struct Draw {
  int64_t down = 0, right = 0;  // where the crop begins, from -crop to crop
  bool mirrored = false;
  int64_t blank_y = 0, blank_x = 0;
};

Draw draw(const Augment& augment, uint64_t seed, uint64_t epoch, uint64_t index,
          tensor::Shape dst) noexcept {
  // All numbers are drawn in any case, so that one switch does not change what another one does.
  base::Stream random(seed, base::Purpose::kAugment, epoch, index);
  const auto offsets = static_cast<uint32_t>(2 * augment.crop + 1);
  Draw result;
  result.down = int64_t{random.below(offsets)} - augment.crop;
  result.right = int64_t{random.below(offsets)} - augment.crop;
  result.mirrored = random.below(2) == 1 && augment.flip;
  result.blank_y = random.below(static_cast<uint32_t>(dst.h));
  result.blank_x = random.below(static_cast<uint32_t>(dst.w));
  return result;
}

// Row `y` of the cropped and mirrored image.
void gather_row(const uint8_t* pixels, tensor::Shape shape, const Draw& draw, int64_t y,
                uint8_t* row) noexcept {
  const auto channels = static_cast<size_t>(shape.c);
  const int64_t from_y = y + draw.down;
  if (from_y < 0 || from_y >= shape.h) {
    std::memset(row, 0, static_cast<size_t>(shape.w) * channels);
    return;
  }
  const uint8_t* from = pixels + from_y * shape.w * shape.c;
  // Column x comes from x + right, or mirrored from w - 1 - x + right: inside for x in [first,
  // last).
  const int64_t shift = draw.mirrored ? draw.right : -draw.right;
  const int64_t first = std::clamp<int64_t>(shift, 0, shape.w);
  const int64_t last = std::clamp<int64_t>(shape.w + shift, first, shape.w);
  const auto bytes = [channels](int64_t columns) {
    return static_cast<size_t>(columns) * channels;
  };
  std::memset(row, 0, bytes(first));
  std::memset(row + bytes(last), 0, bytes(shape.w - last));
  if (!draw.mirrored) {
    std::memcpy(row + bytes(first), from + (first + draw.right) * shape.c, bytes(last - first));
    return;
  }
  for (int64_t x = first; x < last; ++x) {
    const uint8_t* pixel = from + (shape.w - 1 - x + draw.right) * shape.c;
    for (size_t c = 0; c < channels; ++c) row[bytes(x) + c] = pixel[c];
  }
}

}  // namespace

Transform::Transform(tensor::Shape src, tensor::Shape dst, const Normalisation& normalisation,
                     const Augment& augment, uint64_t seed)
    : src_(src), dst_(dst), augment_(augment), seed_(seed) {
  const auto channels = static_cast<size_t>(src.c);
  TRI_CHECK(src.c == dst.c || src.c == 1, "channels {} into {}", src.c, dst.c);
  TRI_CHECK(normalisation.mean.size() == channels && normalisation.deviation.size() == channels,
            "{} means for {} channels", normalisation.mean.size(), channels);
  for (int64_t x = 0; x < src.w; ++x) {
    for (size_t c = 0; c < channels; ++c) {
      scale_.push_back(1.0f / (255.0f * normalisation.deviation[c]));
      shift_.push_back(-normalisation.mean[c] / normalisation.deviation[c]);
    }
  }
  if (src.h != dst.h || src.w != dst.w) resizer_.emplace(src, tensor::Shape{dst.h, dst.w, src.c});
}

size_t Transform::scratch_floats() const {
  const auto row_bytes = static_cast<size_t>(src_.w * src_.c);
  return (row_bytes + sizeof(float) - 1) / sizeof(float) +
         (resizer_ ? resizer_->scratch_floats() : 0);
}

void Transform::apply(const uint8_t* pixels, uint64_t epoch, uint64_t index, float* out,
                      std::span<float> scratch) const noexcept {
  TRI_DCHECK(scratch.size() >= scratch_floats());
  const bool changes = augment_ != Augment{};
  const Draw chance = changes ? draw(augment_, seed_, epoch, index, dst_) : Draw{};
  float* resize_scratch = scratch.data();
  auto* row =
      reinterpret_cast<uint8_t*>(scratch.data() + (resizer_ ? resizer_->scratch_floats() : 0));
  const auto repeats = static_cast<size_t>(dst_.c / src_.c);
  const auto channels = static_cast<size_t>(src_.c);
  const auto values = static_cast<size_t>(dst_.pixels()) * channels;
  // A grey image is resized into the end of `out` and spread from there: value i is read before
  // places repeats * i .. are written, which never lie behind it.
  float* resized = out + values * (repeats - 1);
  float* to = out;
  for (int64_t y = 0; y < src_.h; ++y) {
    gather_row(pixels, src_, chance, y, row);
    if (resizer_) {
      resizer_->add_row(y, row, resize_scratch, resized);
      continue;
    }
    const size_t numbers = scale_.size();
    if (repeats == 1) {
      simd::scale_bytes(row, numbers, scale_.data(), shift_.data(), to);
      to += numbers;
      continue;
    }
    for (size_t i = 0; i < numbers; ++i)
      for (size_t r = 0; r < repeats; ++r)
        *to++ = static_cast<float>(row[i]) * scale_[i] + shift_[i];
  }
  if (resizer_) {
    for (const float* from = resized; from != resized + values; from += channels) {
      for (size_t c = 0; c < channels; ++c) {
        const float value = from[c] * scale_[c] + shift_[c];
        for (size_t repeat = 0; repeat < repeats; ++repeat) *to++ = value;
      }
    }
  }
  if (augment_.cutout > 0) blank(chance.blank_y, chance.blank_x, out);
}

void Transform::blank(int64_t centre_y, int64_t centre_x, float* out) const noexcept {
  const int64_t high = std::max<int64_t>(augment_.cutout * dst_.h / src_.h, 1);
  const int64_t wide = std::max<int64_t>(augment_.cutout * dst_.w / src_.w, 1);
  const int64_t top = std::max<int64_t>(centre_y - high / 2, 0);
  const int64_t bottom = std::min(centre_y - high / 2 + high, dst_.h);
  const int64_t left = std::max<int64_t>(centre_x - wide / 2, 0);
  const int64_t right = std::min(centre_x - wide / 2 + wide, dst_.w);
  for (int64_t y = top; y < bottom; ++y) {
    std::fill_n(out + (y * dst_.w + left) * dst_.c, (right - left) * dst_.c, 0.0f);
  }
}

}  // namespace tri::data
