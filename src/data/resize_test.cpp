#include "data/resize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/draws.h"

namespace tri::data {
namespace {

std::vector<float> resize(tensor::Shape src, tensor::Shape dst,
                          const std::vector<uint8_t>& pixels) {
  const Resizer resizer(src, dst);
  std::vector<float> scratch(resizer.scratch_floats());
  std::vector<float> out(static_cast<size_t>(dst.elements()), std::nanf(""));
  for (int64_t y = 0; y < src.h; ++y) {
    resizer.add_row(y, pixels.data() + y * src.w * src.c, scratch.data(), out.data());
  }
  return out;
}

struct Golden {
  tensor::Shape src, dst;
  std::vector<uint8_t> pixels;
  std::vector<double> expected;
};

// torch 1.13: F.interpolate(x, size, mode="bilinear", antialias=True, align_corners=False).
const Golden kGolden[] = {
    {{5, 7, 1},
     {3, 2, 1},
     {99,  206, 239, 189, 230, 118, 144, 73,  8,   228, 231, 190, 155, 112, 158, 208, 7,  204,
      143, 113, 181, 231, 80,  27,  44,  205, 203, 65,  175, 30,  212, 86,  125, 146, 254},
     {163.49501, 172.232559, 128.914734, 147.710587, 113.332222, 148.810623}},
    {{3, 2, 2},
     {5, 7, 2},
     {121, 129, 137, 210, 106, 103, 41, 144, 233, 206, 190, 5},
     {121,        129,        121,        129,        124.428574, 146.357147, 129,
      169.5,      133.571426, 192.642868, 137,        210,        137,        210,
      115,        118.599998, 115,        118.599998, 111.485718, 132.52858,  106.799995,
      151.100006, 102.114281, 169.671432, 98.5999985, 183.599991, 98.5999985, 183.599991,
      106,        103,        106,        103,        92.0714264, 111.785713, 73.5,
      123.5,      54.928566,  135.214294, 41,         144,        41,         144,
      182.200012, 164.800018, 182.200012, 164.800018, 171.100021, 142.47142,  156.300018,
      112.699997, 141.500015, 82.9285507, 130.400024, 60.5999794, 130.400024, 60.5999794,
      233,        206,        233,        206,        223.785721, 162.928558, 211.5,
      105.5,      199.214279, 48.0714111, 190,        5,          190,        5}},
    {{4, 4, 1},
     {4, 9, 1},
     {58, 0, 208, 132, 110, 164, 105, 179, 27, 31, 2, 68, 38, 105, 211, 147},
     {58,  48.3333321, 22.5555534, 11.5555611, 104,   196.444443, 178.444443, 144.666672, 132,
      110, 119,        143,        160.722229, 134.5, 108.277779, 133.777771, 166.666656, 179,
      27,  27.6666679, 29.4444447, 29.3888874, 16.5,  3.61111188, 27.6666641, 56.9999962, 68,
      38,  49.1666679, 78.9444504, 110.888893, 158,   205.111115, 186.111115, 157.666672, 147}},
    {{9, 6, 2},
     {2, 3, 2},
     {18,  214, 113, 251, 245, 16,  135, 64,  100, 8,   108, 218, 109, 44,  158, 126, 190, 165,
      11,  94,  235, 203, 67,  133, 124, 233, 193, 150, 183, 180, 131, 69,  91,  210, 78,  188,
      155, 91,  157, 29,  33,  216, 217, 120, 85,  225, 135, 220, 16,  207, 94,  70,  14,  35,
      218, 111, 31,  20,  9,   177, 38,  255, 47,  72,  144, 160, 133, 210, 162, 13,  173, 220,
      187, 251, 152, 239, 141, 146, 118, 52,  235, 81,  232, 22,  31,  58,  32,  211, 76,  116,
      172, 235, 133, 92,  142, 211, 175, 177, 94,  4,   82,  82,  128, 243, 231, 36,  135, 169},
     {120.738426, 142.53923, 136.116196, 121.382042, 109.863182, 153.525162, 95.9798737, 150.961761,
      125.040489, 131.596832, 155.177063, 119.533195}},
};

TEST(Resize, MatchesPyTorch) {
  for (const Golden& golden : kGolden) {
    const auto out = resize(golden.src, golden.dst, golden.pixels);
    ASSERT_EQ(out.size(), golden.expected.size());
    for (size_t i = 0; i < out.size(); ++i) {
      // Two means of up to 9 weights, each off by a few roundings: 2 * 9 * 2^-23 * 255.
      EXPECT_NEAR(double{out[i]}, golden.expected[i], 18 * 0x1p-23 * 255) << i;
    }
  }
}

TEST(Resize, KeepsFlatImages) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    base::Draws draw(seed);
    const auto side = [&] { return draw.in<int64_t>(1, 40); };
    const tensor::Shape src{side(), side(), 3}, dst{side(), side(), 3};
    const auto value = static_cast<uint8_t>(draw.word());
    const std::vector<uint8_t> pixels(static_cast<size_t>(src.elements()), value);
    for (const float out : resize(src, dst, pixels)) {
      ASSERT_NEAR(out, value, 80 * 0x1p-23f * 255);
    }
  }
}

TEST(Resize, IsExactAtTheSameSize) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    base::Draws draw(seed);
    const tensor::Shape shape{draw.in<int64_t>(1, 9), draw.in<int64_t>(1, 9), 2};
    std::vector<uint8_t> pixels(static_cast<size_t>(shape.elements()));
    for (uint8_t& pixel : pixels) pixel = static_cast<uint8_t>(draw.word());
    const auto out = resize(shape, shape, pixels);
    EXPECT_TRUE(std::equal(out.begin(), out.end(), pixels.begin()));
  }
}

}  // namespace
}  // namespace tri::data
