#pragma once
// Room: data. What image.cpp and the two decoders agree on. Nothing else includes this.
#include <cstdint>
#include <string>

#include "data/data_file.h"

namespace tri::data {

class RowSink {
 public:
  virtual ~RowSink() = default;
  // Size of the rows to come. False: the size was all that was wanted.
  virtual bool begin(int64_t width, int64_t height) = 0;
  virtual void row(const uint8_t* pixels) = 0;  // from the top, `channels` bytes per pixel
};

struct DecodeRequest {
  int64_t channels = 3;  // 1 or 3
  // The decoder may shrink the image on its own as long as both sides stay at least this; 0: never.
  int64_t min_width = 0, min_height = 0;
  size_t decode_bytes = 0;
};

// Reads a file from start to end for libraries that pull bytes. Only trivially destructible objects
// may live in frames that a library's longjmp skips, so the error is kept here.
class ByteReader {
 public:
  explicit ByteReader(const File& file) : file_(file) {}
  // 0: the end, or an error, which is then in `refused`.
  size_t read(uint8_t* bytes, size_t size) noexcept {
    const auto got = file_.read_some(offset_, {bytes, size});
    if (!got) {
      refused = got.error().message;
      return 0;
    }
    offset_ += *got;
    return *got;
  }
  std::string refused;

 private:
  const File& file_;
  uint64_t offset_ = 0;
};

Result<void> decode_png(const File& file, const DecodeRequest& request, RowSink& sink);
Result<void> decode_jpeg(const File& file, const DecodeRequest& request, RowSink& sink);

// kInvalid: the file can be read, but is no usable image.
Unexpected bad_image(const File& file, const std::string& why);
// The refusal of images that would need too much memory, before any is taken.
Result<void> check_image_size(const File& file, int64_t width, int64_t height);

}  // namespace tri::data
