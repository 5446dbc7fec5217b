// Any bytes as an image. The first byte picks raw bytes or a good image to patch: the rest is then
// triples of a place and a byte. Checksums of PNG chunks are made good again, or no change would
// get past them.
#include <zlib.h>

#include <span>

#include "data/image.h"
#include "data/made_files.h"

namespace tri::data {
namespace {

std::vector<Bytes> good_images() {
  Bytes pixels(4 * 24 * 24);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * i / 5);
  Bytes interlaced = png_bytes(24, 24, PNG_FORMAT_RGBA, pixels);
  interlaced[28] = 1;
  return {png_bytes(24, 24, PNG_FORMAT_RGB, pixels),
          png_bytes(24, 24, PNG_FORMAT_GRAY, pixels),
          png_bytes(12, 24, PNG_FORMAT_LINEAR_RGB_ALPHA, pixels),
          interlaced,
          jpeg_bytes(24, 24, 1, pixels),
          jpeg_bytes(24, 24, 3, pixels),
          jpeg_bytes(24, 24, 3, pixels, true),
          jpeg_bytes(24, 24, 4, pixels)};
}

void mend_checksums(Bytes& png) {
  for (size_t at = 8; at + 12 <= png.size();) {
    size_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | png[at + i];
    if (length > png.size() - at - 12) return;
    const auto crc =
        static_cast<uint32_t>(crc32(0, png.data() + at + 4, static_cast<uInt>(length + 4)));
    const Bytes sum = big_endian({crc});
    std::copy(sum.begin(), sum.end(), png.begin() + static_cast<std::ptrdiff_t>(at + 8 + length));
    at += 12 + length;
  }
}

Bytes make_image(std::span<const uint8_t> input) {
  static const std::vector<Bytes> images = good_images();
  const size_t pick = input[0] % (images.size() + 1);
  input = input.subspan(1);
  if (pick == images.size()) return Bytes(input.begin(), input.end());
  Bytes image = images[pick];
  patch(image, input);
  if (image[0] == 0x89) mend_checksums(image);
  return image;
}

}  // namespace
}  // namespace tri::data

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tri::data;
  static const MemoryFile image;
  if (size == 0) return 0;
  image.write(make_image({data, size}));
  const auto file = File::open(image.path());
  TRI_CHECK(file.has_value());
  const auto header = image_size(*file);
  Bytes pixels;
  for (const int64_t channels : {1, 3}) {
    const tri::tensor::Shape shape{5, 7, channels};
    if (!decode_image(*file, shape, 1 << 20, pixels)) continue;
    TRI_CHECK(header.has_value() && pixels.size() == static_cast<size_t>(shape.elements()));
  }
  return 0;
}
