#include <cstdio>  // jpeglib.h needs FILE
//
#include <jerror.h>
#include <jpeglib.h>

#include <array>
#include <csetjmp>
#include <vector>

#include "data/image_codec.h"

namespace tri::data {
namespace {

struct JpegDecoder {
  JpegDecoder(const File& from, const DecodeRequest& wanted, RowSink& to)
      : file(from), request(wanted), sink(to), reader(from) {
    jpeg.err = jpeg_std_error(&errors);
    errors.error_exit = on_error;
    errors.emit_message = [](j_common_ptr, int) {};
    jpeg.client_data = this;
  }
  ~JpegDecoder() { jpeg_destroy_decompress(&jpeg); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  // Each stage is a frame that libjpeg's longjmp may come back to, so it owns nothing.
  bool read_header() {
    if (setjmp(jump) != 0) return false;
    jpeg_create_decompress(&jpeg);
    jpeg.client_data = this;
    // Zero would mean no limit. Past it libjpeg asks for a temporary file, which it does not have.
    jpeg.mem->max_memory_to_use = static_cast<long>(request.decode_bytes) + 1;
    source.init_source = [](j_decompress_ptr) {};
    source.fill_input_buffer = on_fill;
    source.skip_input_data = on_skip;
    source.resync_to_restart = jpeg_resync_to_restart;
    source.term_source = [](j_decompress_ptr) {};
    jpeg.src = &source;
    progress.progress_monitor = on_progress;
    jpeg.progress = &progress;
    jpeg_read_header(&jpeg, TRUE);
    return true;
  }

  bool start() {
    if (setjmp(jump) != 0) return false;
    const bool ink = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
    jpeg.out_color_space = ink ? JCS_CMYK : request.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    // Shrinking by 2, 4 or 8 inside the inverse DCT saves most of the time of a large photograph.
    while (request.min_width > 0 && jpeg.scale_denom < 8 &&
           jpeg.image_width / (2 * jpeg.scale_denom) >= request.min_width &&
           jpeg.image_height / (2 * jpeg.scale_denom) >= request.min_height) {
      jpeg.scale_denom *= 2;
    }
    jpeg_start_decompress(&jpeg);
    return true;
  }

  bool read_rows() {
    if (setjmp(jump) != 0) return false;
    uint8_t* row = pixels.data();
    while (jpeg.output_scanline < jpeg.output_height) {
      jpeg_read_scanlines(&jpeg, &row, 1);
      if (jpeg.out_color_space == JCS_CMYK) mix_inks(row);
      sink.row(row);
    }
    jpeg_finish_decompress(&jpeg);
    return true;
  }

  // In place, from 4 bytes per pixel to `channels`. Adobe writes inks inverted: 255 is no ink.
  void mix_inks(uint8_t* row) const {
    const int flip = jpeg.saw_Adobe_marker ? 0 : 255;
    uint8_t* out = row;
    for (size_t x = 0; x < jpeg.output_width; ++x) {
      const uint8_t* ink = row + 4 * x;
      std::array<int, 3> light;
      for (size_t c = 0; c < 3; ++c) light[c] = (ink[c] ^ flip) * (ink[3] ^ flip) / 255;
      if (request.channels == 1) {  // Rec. 601 luma, as JPEG's own
        *out++ = static_cast<uint8_t>((299 * light[0] + 587 * light[1] + 114 * light[2]) / 1000);
      } else {
        for (const int value : light) *out++ = static_cast<uint8_t>(value);
      }
    }
  }

  Result<void> run() {
    if (!read_header()) return failure();
    TRI_TRY(check_image_size(file, jpeg.image_width, jpeg.image_height));
    if (request.min_width == 0) {  // only the size is wanted
      sink.begin(jpeg.image_width, jpeg.image_height);
      return {};
    }
    if (!start()) return failure();
    if (!sink.begin(jpeg.output_width, jpeg.output_height)) return {};
    pixels.resize(size_t{jpeg.output_width} * static_cast<size_t>(jpeg.output_components));
    if (!read_rows()) return failure();
    return {};
  }

  Unexpected failure() const {
    if (!reader.refused.empty()) return unexpected(ErrorCode::kFailed, reader.refused);
    return bad_image(file, message);
  }

  static JpegDecoder& self(j_common_ptr jpeg) {
    return *static_cast<JpegDecoder*>(jpeg->client_data);
  }
  static void on_error(j_common_ptr jpeg) {
    std::array<char, JMSG_LENGTH_MAX> text;
    jpeg->err->format_message(jpeg, text.data());
    self(jpeg).message = text.data();
    std::longjmp(self(jpeg).jump, 1);
  }
  static boolean on_fill(j_decompress_ptr jpeg) {
    JpegDecoder& decoder = self(reinterpret_cast<j_common_ptr>(jpeg));
    const size_t got = decoder.reader.read(decoder.buffer.data(), decoder.buffer.size());
    if (got == 0) ERREXIT(jpeg, JERR_INPUT_EOF);
    jpeg->src->next_input_byte = decoder.buffer.data();
    jpeg->src->bytes_in_buffer = got;
    return TRUE;
  }
  static void on_skip(j_decompress_ptr jpeg, long count) {
    while (count > static_cast<long>(jpeg->src->bytes_in_buffer)) {
      count -= static_cast<long>(jpeg->src->bytes_in_buffer);
      on_fill(jpeg);
    }
    if (count <= 0) return;
    jpeg->src->next_input_byte += count;
    jpeg->src->bytes_in_buffer -= static_cast<size_t>(count);
  }
  // A few bytes can claim thousands of scans over a large image; encoders write about ten.
  static void on_progress(j_common_ptr jpeg) {
    if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number > 100) {
      self(jpeg).message = "it has more than 100 scans";
      std::longjmp(self(jpeg).jump, 1);
    }
  }

  const File& file;
  const DecodeRequest& request;
  RowSink& sink;
  ByteReader reader;
  jpeg_decompress_struct jpeg = {};
  jpeg_error_mgr errors = {};
  jpeg_source_mgr source = {};
  jpeg_progress_mgr progress = {};
  std::jmp_buf jump = {};
  std::string message;
  std::vector<uint8_t> pixels;
  std::array<uint8_t, 16 << 10> buffer;
};

}  // namespace

Result<void> decode_jpeg(const File& file, const DecodeRequest& request, RowSink& sink) {
  return JpegDecoder(file, request, sink).run();
}

}  // namespace tri::data
