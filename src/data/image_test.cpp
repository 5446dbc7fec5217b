#include "data/image.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "data/made_files.h"

namespace tri::data {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr size_t kMemory = 1 << 20;

struct ImageTest : testing::Test {
  Result<void> decode(const Bytes& bytes, tensor::Shape shape, size_t memory = kMemory) {
    const auto file = File::open(folder.write("image", bytes));
    TRI_CHECK(file.has_value());
    return decode_image(*file, shape, memory, pixels);
  }
  std::string refusal(const Bytes& bytes, size_t memory = kMemory) {
    const auto done = decode(bytes, {4, 4, 3}, memory);
    if (done) return "decoded";
    EXPECT_EQ(done.error().code, ErrorCode::kInvalid);
    return done.error().message;
  }
  MadeFolder folder;
  Bytes pixels;
};

const Bytes kColours = {255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30};  // 2 x 2

TEST_F(ImageTest, KeepsPngOfTheSameSize) {
  ASSERT_TRUE(decode(png_bytes(2, 2, PNG_FORMAT_RGB, kColours), {2, 2, 3}));
  EXPECT_EQ(pixels, kColours);
}

TEST_F(ImageTest, ConvertsColourTypes) {
  ASSERT_TRUE(decode(png_bytes(2, 1, PNG_FORMAT_GRAY, {7, 9}), {1, 2, 3}));
  EXPECT_EQ(pixels, (Bytes{7, 7, 7, 9, 9, 9}));
  ASSERT_TRUE(decode(png_bytes(1, 1, PNG_FORMAT_RGBA, {1, 2, 3, 0}), {1, 1, 3}));
  EXPECT_EQ(pixels, (Bytes{1, 2, 3}));
  ASSERT_TRUE(decode(png_bytes(1, 1, PNG_FORMAT_RGB, {80, 80, 80}), {1, 1, 1}));
  EXPECT_EQ(pixels, (Bytes{80}));
  ASSERT_TRUE(decode(jpeg_bytes(8, 8, 1, filled(64, 77)), {8, 8, 3}));
  EXPECT_THAT(pixels, Each(77));
  ASSERT_TRUE(decode(jpeg_bytes(8, 8, 3, filled(192, 77)), {8, 8, 1}));
  EXPECT_THAT(pixels, Each(77));
}

TEST_F(ImageTest, ConvertsInks) {
  // libjpeg writes an Adobe marker, so inks are inverted: 255 * 128 / 255 = 128 of light.
  Bytes inks;
  for (int i = 0; i < 64; ++i) inks += Bytes{255, 255, 255, 128};
  ASSERT_TRUE(decode(jpeg_bytes(8, 8, 4, inks), {8, 8, 3}));
  EXPECT_THAT(pixels, Each(128));
  ASSERT_TRUE(decode(jpeg_bytes(8, 8, 4, inks), {8, 8, 1}));
  EXPECT_THAT(pixels, Each(128));
}

TEST_F(ImageTest, TakesTheCentre) {
  // 4 x 2: only the two middle columns are seen.
  const Bytes wide = {1, 50, 60, 2, 3, 70, 80, 4};
  ASSERT_TRUE(decode(png_bytes(4, 2, PNG_FORMAT_GRAY, wide), {2, 2, 1}));
  EXPECT_EQ(pixels, (Bytes{50, 60, 70, 80}));
  // 2 x 4 into a shape twice as wide as high: the middle row is kept and widened.
  const Bytes high = {1, 1, 10, 10, 20, 20, 1, 1};
  ASSERT_TRUE(decode(png_bytes(2, 4, PNG_FORMAT_GRAY, high), {1, 2, 1}));
  EXPECT_EQ(pixels, (Bytes{10, 10}));
}

TEST_F(ImageTest, ShrinksJpegInTheDecoder) {
  // Left half 40, right half 200; 512 pixels into 32 let the decoder shrink by 8.
  Bytes halves;
  for (int y = 0; y < 512; ++y) {
    halves += filled(256, 40);
    halves += filled(256, 200);
  }
  ASSERT_TRUE(decode(jpeg_bytes(512, 512, 1, halves), {32, 32, 1}));
  for (size_t y = 0; y < 32; ++y) {
    EXPECT_NEAR(pixels[32 * y + 3], 40, 1);
    EXPECT_NEAR(pixels[32 * y + 28], 200, 1);
  }
}

TEST_F(ImageTest, ReadsProgressiveWithinItsMemory) {
  const Bytes bytes = jpeg_bytes(512, 512, 3, filled(3 * 512 * 512, 90), true);
  // 512 x 512 coefficients of 2 bytes for luma alone are more than 256 KiB.
  EXPECT_THAT(refusal(bytes, 256 << 10), HasSubstr("cannot decode"));
  EXPECT_EQ(refusal(bytes, 4 << 20), "decoded");
}

TEST_F(ImageTest, SizesComeFromTheHeader) {
  const auto png = File::open(folder.write("a", png_header_only(5000, 3)));
  const auto size = image_size(*png);
  ASSERT_TRUE(size) << size.error().message;
  EXPECT_EQ(size->width, 5000);
  EXPECT_EQ(size->height, 3);
  const auto jpeg = File::open(folder.write("b", jpeg_bytes(7, 5, 1, filled(35, 1))));
  EXPECT_EQ(image_size(*jpeg)->width, 7);
}

TEST_F(ImageTest, RefusesWhatIsWrong) {
  EXPECT_THAT(refusal({}), HasSubstr("neither PNG nor JPEG"));
  EXPECT_THAT(refusal({'G', 'I', 'F', '8', '9', 'a', 0, 0}), HasSubstr("neither PNG nor JPEG"));
  EXPECT_THAT(refusal(png_header_only(10000, 10000)), HasSubstr("10000 x 10000 pixels"));
  EXPECT_THAT(refusal(png_header_only(64, 64)), HasSubstr("cannot decode"));

  Bytes png = png_bytes(2, 2, PNG_FORMAT_RGB, kColours);
  png[png.size() - 20] ^= 1;
  EXPECT_THAT(refusal(png), HasSubstr("cannot decode"));
  png = png_bytes(2, 2, PNG_FORMAT_RGB, kColours);
  png.resize(png.size() / 2);
  EXPECT_THAT(refusal(png), HasSubstr("ends too early"));

  Bytes noise(64 * 64);
  for (size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<uint8_t>(i * i / 7);
  Bytes jpeg = jpeg_bytes(64, 64, 1, noise);
  jpeg.resize(jpeg.size() / 2);
  EXPECT_THAT(refusal(jpeg), HasSubstr("cannot decode"));
  // A claim of 65500 x 65500 in the frame header, which starts with ff c0, length 2, precision 1.
  jpeg = jpeg_bytes(64, 64, 1, noise);
  for (size_t i = 0; i + 9 < jpeg.size(); ++i) {
    if (jpeg[i] != 0xff || jpeg[i + 1] != 0xc0) continue;
    for (const size_t at : {5u, 7u}) jpeg[i + at] = 0xff, jpeg[i + at + 1] = 0xdc;
    break;
  }
  EXPECT_THAT(refusal(jpeg), HasSubstr("65500 x 65500 pixels"));
}

}  // namespace
}  // namespace tri::data
