#pragma once
// Room: data, tests only. Folders and files that tests make for themselves.
#include <png.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdio>
// After <cstdio>: jpeglib.h uses FILE without including it.
#include <jpeglib.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "tensor/shape.h"

namespace tri::data {

using Bytes = std::vector<uint8_t>;

// A folder that is gone with the object.
class MadeFolder {
 public:
  MadeFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "tri-data-XXXXXX").string();
    TRI_CHECK(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~MadeFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  MadeFolder(const MadeFolder&) = delete;
  MadeFolder& operator=(const MadeFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string write(const std::string& name, const Bytes& bytes) const {
    const std::filesystem::path place = std::filesystem::path(path_) / name;
    std::filesystem::create_directories(place.parent_path());
    std::ofstream(place, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return place.string();
  }

 private:
  std::string path_;
};

// A file that lives in memory, for fuzzers: rewriting one on a disk takes milliseconds.
class MemoryFile {
 public:
  MemoryFile() : descriptor_(::memfd_create("made", 0)) { TRI_CHECK(descriptor_ >= 0); }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }
  void write(const Bytes& bytes) const {
    TRI_CHECK(::ftruncate(descriptor_, 0) == 0);
    const auto size = static_cast<ssize_t>(bytes.size());
    TRI_CHECK(::pwrite(descriptor_, bytes.data(), bytes.size(), 0) == size);
  }
  void link(const MadeFolder& folder, const std::string& name) const {
    std::filesystem::create_symlink(path(), folder.path() + "/" + name);
  }

 private:
  int descriptor_;
};

// `format` as of libpng's simplified interface: PNG_FORMAT_GRAY, _RGB, _RGBA, ...
inline Bytes png_bytes(uint32_t width, uint32_t height, uint32_t format, const Bytes& pixels) {
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = width;
  image.height = height;
  image.format = format;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  Bytes bytes(size);
  TRI_CHECK(
      png_image_write_to_memory(&image, bytes.data(), &size, 0, pixels.data(), 0, nullptr) != 0,
      "{}", image.message);
  bytes.resize(size);
  return bytes;
}

inline Bytes jpeg_bytes(uint32_t width, uint32_t height, int components, const Bytes& pixels,
                        bool progressive = false) {
  jpeg_compress_struct jpeg = {};
  jpeg_error_mgr errors = {};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* out = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &out, &size);
  jpeg.image_width = width;
  jpeg.image_height = height;
  jpeg.input_components = components;
  jpeg.in_color_space = components == 1 ? JCS_GRAYSCALE : components == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 100, TRUE);
  if (progressive) jpeg_simple_progression(&jpeg);
  jpeg_start_compress(&jpeg, TRUE);
  const size_t stride = size_t{width} * static_cast<size_t>(components);
  while (jpeg.next_scanline < height) {
    auto* row = const_cast<uint8_t*>(pixels.data() + jpeg.next_scanline * stride);
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  Bytes bytes(out, out + size);
  std::free(out);  // NOLINT: libjpeg took it from malloc
  return bytes;
}

// A header that claims a size, and nothing that could back it up.
inline Bytes png_header_only(uint32_t width, uint32_t height) {
  Bytes bytes = png_bytes(1, 1, PNG_FORMAT_GRAY, {0});
  for (size_t i = 0; i < 4; ++i) {
    bytes[16 + i] = static_cast<uint8_t>(width >> (24 - 8 * i));
    bytes[20 + i] = static_cast<uint8_t>(height >> (24 - 8 * i));
  }
  const auto crc = static_cast<uint32_t>(crc32(0, bytes.data() + 12, 17));
  for (size_t i = 0; i < 4; ++i) bytes[29 + i] = static_cast<uint8_t>(crc >> (24 - 8 * i));
  return bytes;
}

// For fuzzers: `patches` are triples of a place (high byte first) and the byte to put there.
inline void patch(Bytes& bytes, std::span<const uint8_t> patches) {
  for (; patches.size() >= 3; patches = patches.subspan(3)) {
    bytes[(patches[0] * 256u + patches[1]) % bytes.size()] = patches[2];
  }
}

inline Bytes gzipped(const Bytes& bytes) {
  Bytes packed(bytes.size() + 1000);
  z_stream stream = {};
  TRI_CHECK(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  stream.next_in = const_cast<uint8_t*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  TRI_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

inline Bytes filled(size_t size, uint8_t value) { return Bytes(size, value); }

inline Bytes& operator+=(Bytes& to, const Bytes& more) {
  to.insert(to.end(), more.begin(), more.end());
  return to;
}

inline Bytes big_endian(std::initializer_list<uint32_t> words) {
  Bytes bytes;
  for (const uint32_t word : words) {
    for (int shift = 24; shift >= 0; shift -= 8)
      bytes.push_back(static_cast<uint8_t>(word >> shift));
  }
  return bytes;
}

}  // namespace tri::data
