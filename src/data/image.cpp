#include "data/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/check.h"
#include "data/image_codec.h"
#include "data/resize.h"

namespace tri::data {
namespace {

Result<void> decode(const File& file, const DecodeRequest& request, RowSink& sink) {
  std::array<uint8_t, 8> magic = {};
  const auto got = file.read_some(0, magic);
  if (!got) return unexpected(got.error());
  if (magic == std::array<uint8_t, 8>{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'}) {
    return decode_png(file, request, sink);
  }
  if (magic[0] == 0xff && magic[1] == 0xd8) return decode_jpeg(file, request, sink);
  return bad_image(file, "it is neither PNG nor JPEG");
}

struct SizeSink final : RowSink {
  ImageSize size;
  bool begin(int64_t width, int64_t height) override {
    size = {width, height};
    return false;
  }
  void row(const uint8_t*) override {}
};

// Cuts the centred window out of the rows and resizes it.
class WindowSink final : public RowSink {
 public:
  explicit WindowSink(tensor::Shape shape) : shape_(shape) {}

  bool begin(int64_t width, int64_t height) override {
    const int64_t w = std::clamp<int64_t>(height * shape_.w / shape_.h, 1, width);
    const int64_t h = std::clamp<int64_t>(width * shape_.h / shape_.w, 1, height);
    left_ = (width - w) / 2;
    top_ = (height - h) / 2;
    resizer_.emplace(tensor::Shape{h, w, shape_.c}, shape_);
    scratch_.resize(resizer_->scratch_floats());
    image_.resize(static_cast<size_t>(shape_.elements()));
    return true;
  }

  void row(const uint8_t* pixels) override {
    const int64_t y = seen_++ - top_;
    if (y < 0 || y >= resizer_->src().h) return;
    resizer_->add_row(y, pixels + left_ * shape_.c, scratch_.data(), image_.data());
  }

  void write(std::vector<uint8_t>& pixels) const {
    pixels.resize(image_.size());
    // A weighted mean of bytes stays within 0..255 but for rounding.
    std::transform(image_.begin(), image_.end(), pixels.begin(), [](float value) {
      return static_cast<uint8_t>(std::clamp(value + 0.5f, 0.0f, 255.0f));
    });
  }

 private:
  tensor::Shape shape_;
  int64_t left_ = 0, top_ = 0, seen_ = 0;
  std::optional<Resizer> resizer_;
  std::vector<float> scratch_, image_;
};

}  // namespace

Unexpected bad_image(const File& file, const std::string& why) {
  return unexpected(
      ErrorCode::kInvalid,
      fmt::format("cannot decode {}: {}; repair or remove the image", file.path(), why));
}

Result<void> check_image_size(const File& file, int64_t width, int64_t height) {
  if (width < 1 || height < 1 || width > kMaxImagePixels / height) {
    return bad_image(file, fmt::format("it is {} x {} pixels, the limit is {} in all", width,
                                       height, kMaxImagePixels));
  }
  return {};
}

Result<ImageSize> image_size(const File& file) {
  SizeSink sink;
  TRI_TRY(decode(file, {}, sink));
  return sink.size;
}

Result<void> decode_image(const File& file, tensor::Shape shape, size_t decode_bytes,
                          std::vector<uint8_t>& pixels) {
  TRI_CHECK(shape.c == 1 || shape.c == 3, "channels = {}", shape.c);
  WindowSink sink(shape);
  // Twice the target: below that, the decoder's own box filter would show in the result.
  TRI_TRY(decode(file, {shape.c, 2 * shape.w, 2 * shape.h, decode_bytes}, sink));
  sink.write(pixels);
  return {};
}

}  // namespace tri::data
