#include "data/augment.h"

#include <gmock/gmock.h>

#include "base/draws.h"

namespace tri::data {
namespace {

TEST(Augment, ReadsItsGrammar) {
  const Augment automatic{.crop = 3, .flip = true};
  EXPECT_EQ(*parse_augment("none", automatic), Augment{});
  EXPECT_EQ(*parse_augment("auto", automatic), automatic);
  EXPECT_EQ(*parse_augment("flip", automatic), Augment{.flip = true});
  EXPECT_EQ(*parse_augment("crop4,flip,cutout8", automatic),
            (Augment{.crop = 4, .flip = true, .cutout = 8}));
}

TEST(Augment, RefusesTheRest) {
  for (const char* text : {"", "crop", "crop0", "crop-1", "crop4x", "crop9999", "flip,", "Flip",
                           "cutout", "rotate", "none,flip"}) {
    const auto augment = parse_augment(text, {});
    ASSERT_FALSE(augment) << text;
    EXPECT_EQ(augment.error().code, ErrorCode::kInvalid);
  }
}

TEST(Augment, ReadsWhatItWrites) {
  base::Draws draw(1);
  for (int i = 0; i < 100; ++i) {
    // Zero leaves a part out: half of the time.
    const auto side = [&] { return draw.coin() ? draw.in(1, 1025) : 0; };
    const Augment augment{.crop = side(), .flip = draw.coin(), .cutout = side()};
    EXPECT_EQ(*parse_augment(augment.text(), {}), augment);
  }
}

}  // namespace
}  // namespace tri::data
