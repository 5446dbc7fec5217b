#include "ops/op.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "base/draws.h"

namespace tri::ops {
namespace {

using tensor::Shape;
using ::testing::HasSubstr;

Attributes window(int64_t kernel, int64_t stride, int64_t padding, bool ceil_mode = false) {
  Attributes attr;
  attr.kernel_h = attr.kernel_w = kernel;
  attr.stride_h = attr.stride_w = stride;
  attr.padding_h = attr.padding_w = padding;
  attr.ceil_mode = ceil_mode;
  return attr;
}

std::string refusal(OpKind kind, const Attributes& attr, std::vector<Shape> inputs) {
  const Result<Shape> shape = infer(kind, attr, inputs);
  if (shape) return "accepted as " + shape->text();
  EXPECT_EQ(shape.error().code, ErrorCode::kInvalid);
  return shape.error().message;
}

Shape accepted(OpKind kind, const Attributes& attr, std::vector<Shape> inputs) {
  const Result<Shape> shape = infer(kind, attr, inputs);
  EXPECT_TRUE(shape) << shape.error().message;
  return shape.value_or(Shape{-1, -1, -1});
}

TEST(OpList, NamesAreUniqueFolders) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < kOpKinds; ++i) names.insert(name(static_cast<OpKind>(i)));
  EXPECT_EQ(names.size(), kOpKinds);
  EXPECT_EQ(name(OpKind::kConv2d), "conv2d");
  EXPECT_EQ(name(OpKind::kSoftmaxCrossEntropy), "softmax_cross_entropy");
}

TEST(OpRules, EveryOperationRefusesAWrongNumberOfInputs) {
  for (size_t i = 0; i < kOpKinds; ++i) {
    const auto kind = static_cast<OpKind>(i);
    const size_t wrong = kind == OpKind::kInput ? 1 : kind == OpKind::kConcat ? 1 : 3;
    EXPECT_THAT(refusal(kind, {}, std::vector<Shape>(wrong)), HasSubstr("inputs were given"))
        << name(kind);
  }
}

TEST(OpRules, ConvolutionSlidesItsWindow) {
  Attributes attr = window(7, 2, 3);
  attr.out_channels = 64;
  EXPECT_EQ(accepted(OpKind::kConv2d, attr, {{224, 224, 3}}), (Shape{112, 112, 64}));
  EXPECT_EQ(accepted(OpKind::kConv2d, attr, {{33, 47, 3}}), (Shape{17, 24, 64}));
  EXPECT_EQ(accepted(OpKind::kConv2d, attr, {{1, 1, 3}}), (Shape{1, 1, 64}));
  EXPECT_THAT(refusal(OpKind::kConv2d, window(5, 1, 0), {{8, 8, 3}}), HasSubstr("output channels"));
  attr.padding_h = 0;
  EXPECT_THAT(refusal(OpKind::kConv2d, attr, {{6, 8, 3}}),
              HasSubstr("7x7 kernel does not fit the input 6x8x3 (HWC)"));
  attr.groups = 2;
  EXPECT_THAT(refusal(OpKind::kConv2d, attr, {{224, 224, 3}}), HasSubstr("224x224x3 (HWC)"));
}

TEST(OpRules, PoolsFollowPytorchInCeilMode) {
  EXPECT_EQ(accepted(OpKind::kMaxPool, window(3, 2, 0, false), {{6, 8, 2}}), (Shape{2, 3, 2}));
  EXPECT_EQ(accepted(OpKind::kMaxPool, window(3, 2, 0, true), {{6, 8, 2}}), (Shape{3, 4, 2}));
  // The fourth window would start in the far padding: PyTorch leaves it out.
  EXPECT_EQ(accepted(OpKind::kAvgPool, window(2, 3, 1, true), {{8, 8, 1}}), (Shape{3, 3, 1}));
  EXPECT_THAT(refusal(OpKind::kMaxPool, window(3, 2, 2), {{9, 9, 1}}), HasSubstr("more than half"));
}

TEST(OpRules, SizesOutOfRangeAreRefused) {
  for (const int64_t bad : {int64_t{0}, int64_t{-1}, kMaxExtent + 1, INT64_MAX, INT64_MIN}) {
    EXPECT_THAT(refusal(OpKind::kMaxPool, window(bad, 1, 0), {{8, 8, 1}}), HasSubstr("kernel"));
    EXPECT_THAT(refusal(OpKind::kMaxPool, window(1, bad, 0), {{8, 8, 1}}), HasSubstr("stride"));
    EXPECT_THAT(refusal(OpKind::kFlatten, {}, {{bad, 8, 1}}), HasSubstr("extent outside"));
    Attributes attr;
    attr.out_channels = bad;
    EXPECT_THAT(refusal(OpKind::kLinear, attr, {{1, 1, 4}}), HasSubstr(std::to_string(bad)));
    attr.input_shape = {4, bad, 3};
    EXPECT_THAT(refusal(OpKind::kInput, attr, {}), HasSubstr("extent outside"));
  }
  EXPECT_THAT(refusal(OpKind::kMaxPool, window(1, 1, -1), {{8, 8, 1}}), HasSubstr("padding"));
  EXPECT_THAT(refusal(OpKind::kFlatten, {}, {{kMaxExtent, kMaxExtent, 1}}), HasSubstr("elements"));
}

TEST(OpRules, MismatchesNameBothShapes) {
  const std::string add = refusal(OpKind::kAdd, {}, {{8, 8, 16}, {8, 8, 32}});
  EXPECT_THAT(add, HasSubstr("8x8x16"));
  EXPECT_THAT(add, HasSubstr("8x8x32"));
  const std::string concat = refusal(OpKind::kConcat, {}, {{8, 8, 16}, {8, 4, 16}});
  EXPECT_THAT(concat, HasSubstr("8x8x16"));
  EXPECT_THAT(concat, HasSubstr("8x4x16"));
  const std::string scale = refusal(OpKind::kChannelScale, {}, {{8, 8, 16}, {1, 1, 8}});
  EXPECT_THAT(scale, HasSubstr("8x8x16"));
  EXPECT_THAT(scale, HasSubstr("1x1x8"));
  Attributes linear;
  linear.out_channels = 10;
  EXPECT_THAT(refusal(OpKind::kLinear, linear, {{7, 7, 64}}), HasSubstr("7x7x64"));
  EXPECT_THAT(refusal(OpKind::kSoftmaxCrossEntropy, {}, {{7, 7, 64}}), HasSubstr("7x7x64"));
}

TEST(OpRules, ShapesOfTheRest) {
  const Shape image{4, 6, 8};
  Attributes split;
  split.begin = 2;
  split.count = 6;
  EXPECT_EQ(accepted(OpKind::kSplit, split, {image}), (Shape{4, 6, 6}));
  split.count = INT64_MAX;
  EXPECT_THAT(refusal(OpKind::kSplit, split, {image}), HasSubstr("4x6x8"));
  EXPECT_EQ(accepted(OpKind::kConcat, {}, {image, {4, 6, 1}, image}), (Shape{4, 6, 17}));
  EXPECT_EQ(accepted(OpKind::kFlatten, {}, {image}), (Shape{1, 1, 192}));
  EXPECT_EQ(accepted(OpKind::kGlobalAvgPool, {}, {image}), (Shape{1, 1, 8}));
  EXPECT_EQ(accepted(OpKind::kSoftmaxCrossEntropy, {}, {{1, 1, 8}}), (Shape{1, 1, 1}));
  Attributes shuffle;
  shuffle.groups = 3;
  EXPECT_THAT(refusal(OpKind::kChannelShuffle, shuffle, {image}), HasSubstr("3 groups"));
  Attributes drop;
  for (const float bad : {-0.1f, 1.0f, NAN}) {
    drop.rate = bad;
    EXPECT_THAT(refusal(OpKind::kDropout, drop, {image}), HasSubstr("rate"));
    EXPECT_THAT(refusal(OpKind::kStochasticDepth, drop, {image}), HasSubstr("rate"));
  }
  EXPECT_THAT(refusal(OpKind::kActivation, {}, {image}), HasSubstr("no activation"));
}

// Whatever numbers come in, an answer is a valid shape or a sentence.
TEST(OpRules, AnyNumbersGiveAShapeOrASentence) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(seed);
    base::Draws draw(seed);
    // Small numbers mostly: one absurd extent among twenty is refused before the rest is looked at.
    const auto extent = [&] {
      return draw.in(0, 20) > 0 ? draw.in<int64_t>(-1, 40) : static_cast<int64_t>(draw.word());
    };
    const auto kind = static_cast<OpKind>(draw.in<size_t>(0, kOpKinds));
    Attributes attr;
    attr.out_channels = extent();
    attr.kernel_h = extent();
    attr.kernel_w = extent();
    attr.stride_h = extent();
    attr.stride_w = extent();
    attr.padding_h = extent();
    attr.padding_w = extent();
    attr.groups = extent();
    attr.begin = extent();
    attr.count = extent();
    attr.ceil_mode = draw.coin();
    attr.input_shape = {extent(), extent(), extent()};
    std::vector<Shape> inputs(draw.in<size_t>(0, 4));
    for (Shape& input : inputs) input = {extent(), extent(), extent()};
    const Result<Shape> shape = infer(kind, attr, inputs);
    if (shape) {
      EXPECT_TRUE(shape->h >= 1 && shape->w >= 1 && shape->c >= 1);
      EXPECT_LE(shape->elements(), kMaxElements);
    } else {
      EXPECT_FALSE(shape.error().message.empty());
    }
  }
}

}  // namespace
}  // namespace tri::ops
