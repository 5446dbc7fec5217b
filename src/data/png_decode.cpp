#include <png.h>

#include <csetjmp>
#include <memory>
#include <vector>

#include "data/image_codec.h"

namespace tri::data {
namespace {

struct PngDecoder {
  PngDecoder(const File& from, const DecodeRequest& wanted, RowSink& to)
      : file(from), request(wanted), sink(to), reader(from) {
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
    if (png != nullptr) info = png_create_info_struct(png);
  }
  ~PngDecoder() { png_destroy_read_struct(&png, &info, nullptr); }
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  // Each stage is a frame that libpng's longjmp may come back to, so it owns nothing.
  bool read_header() {
    if (setjmp(png_jmpbuf(png)) != 0) return false;
    png_set_read_fn(png, this, on_read);
    png_set_chunk_malloc_max(png, 1 << 20);  // text and profiles are of no use here
    png_read_info(png, info);
    width = png_get_image_width(png, info);
    height = png_get_image_height(png, info);
    return true;
  }

  bool set_transforms() {
    if (setjmp(png_jmpbuf(png)) != 0) return false;
    png_set_expand(png);  // palettes and less than 8 bits
    png_set_scale_16(png);
    png_set_strip_alpha(png);
    const bool colour = (png_get_color_type(png, info) & PNG_COLOR_MASK_COLOR) != 0;
    if (request.channels == 3 && !colour) png_set_gray_to_rgb(png);
    if (request.channels == 1 && colour)
      png_set_rgb_to_gray_fixed(png, PNG_ERROR_ACTION_NONE, -1, -1);
    passes = png_set_interlace_handling(png);
    png_read_update_info(png, info);
    row_bytes = png_get_rowbytes(png, info);
    return true;
  }

  bool read_rows() {
    if (setjmp(png_jmpbuf(png)) != 0) return false;
    // Interlaced images are refined in passes over all rows, the others need one row.
    const size_t stride = passes > 1 ? row_bytes : 0;
    for (int pass = 0; pass < passes; ++pass) {
      for (size_t y = 0; y < height; ++y) {
        uint8_t* row = rows.data() + y * stride;
        png_read_row(png, row, nullptr);
        if (pass + 1 == passes) sink.row(row);
      }
    }
    png_read_end(png, nullptr);
    return true;
  }

  Result<void> run() {
    if (info == nullptr) return bad_image(file, "libpng has no memory");
    if (!read_header()) return failure();
    TRI_TRY(check_image_size(file, static_cast<int64_t>(width), static_cast<int64_t>(height)));
    if (!sink.begin(static_cast<int64_t>(width), static_cast<int64_t>(height))) return {};
    if (!set_transforms()) return failure();
    if (row_bytes != width * static_cast<size_t>(request.channels)) {
      return bad_image(file, "its rows have an unknown layout");
    }
    const size_t bytes = passes > 1 ? row_bytes * height : row_bytes;
    if (bytes > request.decode_bytes)
      return bad_image(file, "interlaced, it needs too much memory");
    rows.resize(bytes);
    if (!read_rows()) return failure();
    return {};
  }

  Unexpected failure() const {
    if (!reader.refused.empty()) return unexpected(ErrorCode::kFailed, reader.refused);
    return bad_image(file, message);
  }

  static void on_read(png_structp png, png_bytep bytes, size_t size) {
    auto* self = static_cast<PngDecoder*>(png_get_io_ptr(png));
    if (self->reader.read(bytes, size) != size) png_error(png, "it ends too early");
  }
  static void on_error(png_structp png, png_const_charp text) {
    static_cast<PngDecoder*>(png_get_error_ptr(png))->message = text;
    png_longjmp(png, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}

  const File& file;
  const DecodeRequest& request;
  RowSink& sink;
  ByteReader reader;
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::string message;
  size_t width = 0, height = 0, row_bytes = 0;
  int passes = 1;
  std::vector<uint8_t> rows;
};

}  // namespace

Result<void> decode_png(const File& file, const DecodeRequest& request, RowSink& sink) {
  return PngDecoder(file, request, sink).run();
}

}  // namespace tri::data
