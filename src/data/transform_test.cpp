#include "data/transform.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace tri::data {
namespace {

// Leaves bytes as they are: (v / 255 - 0) / (1 / 255).
const Normalisation kPlain{{0.0f}, {1.0f / 255}};

struct Image {
  tensor::Shape shape;
  std::vector<uint8_t> pixels;
};

// Pixels 1, 2, 3, ... so that 0 can only come from padding or a blank square.
Image numbered(int64_t h, int64_t w) {
  Image image{{h, w, 1}, std::vector<uint8_t>(static_cast<size_t>(h * w))};
  std::iota(image.pixels.begin(), image.pixels.end(), uint8_t{1});
  return image;
}

std::vector<float> apply(const Transform& transform, const Image& image, tensor::Shape dst,
                         uint64_t epoch, uint64_t index) {
  std::vector<float> scratch(transform.scratch_floats());
  std::vector<float> out(static_cast<size_t>(dst.elements()), std::nanf(""));
  transform.apply(image.pixels.data(), epoch, index, out.data(), scratch);
  return out;
}

// The plain normalised values, rounded back to the bytes they came from.
std::vector<int> bytes_of(const std::vector<float>& values) {
  std::vector<int> bytes;
  for (const float value : values) bytes.push_back(static_cast<int>(std::lround(value)));
  return bytes;
}

TEST(Transform, Normalises) {
  const Normalisation statistics{{0.4914f, 0.4822f, 0.4465f}, {0.2470f, 0.2435f, 0.2616f}};
  Image image{{16, 16, 3}, {}};
  for (size_t i = 0; i < 768; ++i) image.pixels.push_back(static_cast<uint8_t>(i / 3));
  const auto out = apply({image.shape, image.shape, statistics, {}, 0}, image, image.shape, 0, 0);
  for (size_t i = 0; i < out.size(); ++i) {
    const double expected = (image.pixels[i] / 255.0 - double{statistics.mean[i % 3]}) /
                            double{statistics.deviation[i % 3]};
    EXPECT_NEAR(out[i], expected, 8 * 0x1p-24);  // values up to 4, four roundings
  }
}

TEST(Transform, CropsEveryOffsetEquallyOften) {
  const Image image = numbered(5, 6);
  const Transform transform(image.shape, image.shape, kPlain, {.crop = 1}, 7);
  std::set<std::vector<int>> seen;
  for (uint64_t index = 0; index < 200; ++index) {
    const auto out = bytes_of(apply(transform, image, image.shape, 0, index));
    // The offset shows in the pixel that lies in the middle; all others must follow from it.
    const int down = (out[2 * 6 + 3] - 1) / 6 - 2, right = (out[2 * 6 + 3] - 1) % 6 - 3;
    for (int y = 0; y < 5; ++y) {
      for (int x = 0; x < 6; ++x) {
        const int from_y = y + down, from_x = x + right;
        const bool inside = from_y >= 0 && from_y < 5 && from_x >= 0 && from_x < 6;
        ASSERT_EQ(out[static_cast<size_t>(6 * y + x)], inside ? 6 * from_y + from_x + 1 : 0);
      }
    }
    seen.insert({down, right});
  }
  EXPECT_EQ(seen.size(), 9u);
}

TEST(Transform, MirrorsHalfOfTheTime) {
  const Image image = numbered(2, 3);
  const Transform transform(image.shape, image.shape, kPlain, {.flip = true}, 7);
  int mirrored = 0;
  for (uint64_t index = 0; index < 1000; ++index) {
    const auto out = bytes_of(apply(transform, image, image.shape, 3, index));
    if (out == std::vector<int>{3, 2, 1, 6, 5, 4}) {
      ++mirrored;
    } else {
      ASSERT_EQ(out, (std::vector<int>{1, 2, 3, 4, 5, 6}));
    }
  }
  EXPECT_NEAR(mirrored, 500, 4 * std::sqrt(250));  // 4 sigma of the binomial distribution
}

// Also where a crop begins beyond the image. The mirrored image is the mirrored image of a crop.
TEST(Transform, CropsAndMirrorsTogetherInAnyNumberOfChannels) {
  constexpr int64_t kHigh = 3, kWide = 4, kCrop = 5;
  for (const int64_t channels : {1, 2, 3}) {
    Image image{{kHigh, kWide, channels}, {}};
    for (int64_t i = 1; i <= image.shape.elements(); ++i) {
      image.pixels.push_back(static_cast<uint8_t>(i));
    }
    std::set<std::vector<int>> possible;
    for (int64_t down = -kCrop; down <= kCrop; ++down) {
      for (int64_t right = -kCrop; right <= kCrop; ++right) {
        std::vector<int> plain, mirrored;
        for (int64_t i = 0; i < image.shape.elements(); ++i) {
          const int64_t c = i % channels, x = i / channels % kWide, y = i / channels / kWide + down;
          const auto at = [&](int64_t from_x) {
            const bool inside = y >= 0 && y < kHigh && from_x >= 0 && from_x < kWide;
            return inside ? static_cast<int>((y * kWide + from_x) * channels + c + 1) : 0;
          };
          plain.push_back(at(x + right));
          mirrored.push_back(at(kWide - 1 - x + right));
        }
        possible.insert(plain);
        possible.insert(mirrored);
      }
    }
    const Normalisation plain{std::vector<float>(static_cast<size_t>(channels), 0.0f),
                              std::vector<float>(static_cast<size_t>(channels), 1.0f / 255)};
    const Transform transform(image.shape, image.shape, plain, {.crop = kCrop, .flip = true}, 7);
    std::set<std::vector<int>> seen;
    for (uint64_t index = 0; index < 3000; ++index) {
      seen.insert(bytes_of(apply(transform, image, image.shape, 0, index)));
    }
    EXPECT_EQ(seen, possible) << channels;
  }
}

TEST(Transform, BlanksASquareWithTheMean) {
  const Image image = numbered(8, 8);
  const Transform transform(image.shape, image.shape, kPlain, {.cutout = 4}, 7);
  std::set<std::ptrdiff_t> areas;
  for (uint64_t index = 0; index < 300; ++index) {
    const auto out = apply(transform, image, image.shape, 0, index);
    areas.insert(std::count(out.begin(), out.end(), 0.0f));
  }
  // Whole inside, or cut by one or two edges: the square's sides are 2, 3 or 4.
  EXPECT_EQ(areas, (std::set<std::ptrdiff_t>{4, 6, 8, 9, 12, 16}));
}

TEST(Transform, DependsOnSeedEpochAndIndexAlone) {
  const Image image = numbered(8, 8);
  const Augment augment{.crop = 4, .flip = true, .cutout = 2};
  const Transform transform(image.shape, image.shape, kPlain, augment, 7);
  const Transform other(image.shape, image.shape, kPlain, augment, 8);
  int same = 0;
  for (uint64_t i = 0; i < 20; ++i) {
    const auto out = apply(transform, image, image.shape, 1, i);
    EXPECT_EQ(out, apply(transform, image, image.shape, 1, i));
    same += out == apply(transform, image, image.shape, 2, i);
    same += out == apply(transform, image, image.shape, 1, i + 1);
    same += out == apply(other, image, image.shape, 1, i);
  }
  EXPECT_LE(same, 2);  // chance: one in 162 crops and flips, and the square
}

TEST(Transform, RepeatsGreyWithAndWithoutResize) {
  const Image image = numbered(4, 4);
  for (const int64_t side : {4, 7, 2}) {
    const tensor::Shape grey{side, side, 1}, colour{side, side, 3};
    const auto one = apply({image.shape, grey, kPlain, {}, 0}, image, grey, 0, 0);
    const auto three = apply({image.shape, colour, kPlain, {}, 0}, image, colour, 0, 0);
    for (size_t i = 0; i < three.size(); ++i) ASSERT_EQ(three[i], one[i / 3]) << side;
  }
}

TEST(Transform, NormalisesWhatItResized) {
  Image image{{4, 4, 3}, std::vector<uint8_t>(48, 51)};
  const tensor::Shape dst{9, 3, 3};
  const Normalisation statistics{{0.1f, 0.2f, 0.3f}, {0.1f, 0.2f, 0.4f}};
  const auto out = apply({image.shape, dst, statistics, {}, 0}, image, dst, 0, 0);
  for (size_t i = 0; i < out.size(); i += 3) {
    EXPECT_NEAR(out[i], 1.0, 1e-5);  // (51 / 255 - 0.1) / 0.1
    EXPECT_NEAR(out[i + 1], 0.0, 1e-5);
    EXPECT_NEAR(out[i + 2], -0.25, 1e-5);
  }
}

}  // namespace
}  // namespace tri::data
