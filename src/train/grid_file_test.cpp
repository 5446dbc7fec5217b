#include "tri/grid_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tri {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(GridFile, SaysWhatItHolds) {
  const auto grid = parse_grid(R"(
title = "Rates"
seeds = [0, 3]
epochs = 2
[set]
model = "convnet"
nesterov = true
[vary]
lr = [0.1, 0.05]
[[run]]
name = "plain"
method = "fp32"
[[run]]
name = "half"
method = "amp"
)",
                               "g.toml");
  ASSERT_TRUE(grid) << grid.error().message;
  EXPECT_EQ(grid->title, "Rates");
  EXPECT_THAT(grid->seeds, ElementsAre(0, 3));
  EXPECT_EQ(grid->epochs, 2);
  EXPECT_THAT(grid->common, ElementsAre(Pair("model", "convnet"), Pair("nesterov", "true")));
  ASSERT_EQ(grid->axes.size(), 1);
  EXPECT_THAT(grid->axes[0].values, ElementsAre("0.1", "0.05"));
  ASSERT_EQ(grid->variants.size(), 2);
  EXPECT_EQ(grid->variants[1].name, "half");
  EXPECT_THAT(grid->variants[1].settings, ElementsAre(Pair("method", "amp")));
}

TEST(GridFile, RefusesWithTheLine) {
  const auto refusal = [](std::string_view text) {
    const auto grid = parse_grid(text, "g.toml");
    return grid ? std::string() : grid.error().message;
  };
  EXPECT_THAT(refusal("\n\nflights = 3"), HasSubstr("'g.toml' line 3"));
  EXPECT_THAT(refusal("[set]\nmodle = \"mlp\""), HasSubstr("line 2"));
  EXPECT_THAT(refusal("[set]\nlr = -1"), HasSubstr("-1"));
  EXPECT_THAT(refusal("[set]\nlr = [1]"), HasSubstr("lr"));
  EXPECT_THAT(refusal("[vary]\nlr = 0.1"), HasSubstr("list"));
  EXPECT_THAT(refusal("[vary]\nlr = []"), HasSubstr("list"));
  EXPECT_THAT(refusal("[[run]]\nlr = 1"), HasSubstr("name"));
  EXPECT_THAT(refusal("seeds = [-1]"), HasSubstr("seed"));
  EXPECT_THAT(refusal("seeds = 1"), HasSubstr("seeds"));
  EXPECT_THAT(refusal("epochs = 0"), HasSubstr("at least 1"));
  for (const char* key : {"seed = 1", "epochs = 2", "out = \"x\""}) {
    EXPECT_THAT(refusal(std::string("[set]\n") + key), HasSubstr("is not set by run"));
  }
  EXPECT_THAT(refusal("[vary]\nseed = [1, 2]"), HasSubstr("is not set by run"));
  EXPECT_THAT(refusal("[[run]]\nname = \"a\"\n[[run]]\nname = \"a\""), HasSubstr("'a'"));
  EXPECT_THAT(refusal("[set"), HasSubstr("line 1"));
  EXPECT_THAT(read_grid_file("/none/g.toml").error().message, HasSubstr("/none/g.toml"));
}

}  // namespace
}  // namespace tri
