#pragma once
// Room: data. In: a PNG or JPEG file, told apart by its first bytes, not its name. Out: pixels of
// the size asked for. Colour types are converted (palette, grey, 16 bit, CMYK), transparency is
// dropped. Rows stream through the resizer, so memory depends on the width, not the area.
#include <cstdint>
#include <vector>

#include "data/data_file.h"
#include "tensor/shape.h"

namespace tri::data {

// Larger images are refused by their header.
inline constexpr int64_t kMaxImagePixels = int64_t{64} << 20;

struct ImageSize {
  int64_t width = 0, height = 0;
};
Result<ImageSize> image_size(const File& file);

// The largest centred part with the aspect of `shape`, resized to it, as (H, W, C) bytes.
// `decode_bytes` bounds what the decoder may hold: only progressive JPEG and interlaced PNG need
// more than a few rows. Fails with kInvalid where the bytes are no usable image, with kFailed where
// they could not be read. REQUIRES: shape.c is 1 or 3.
Result<void> decode_image(const File& file, tensor::Shape shape, size_t decode_bytes,
                          std::vector<uint8_t>& pixels);

}  // namespace tri::data
