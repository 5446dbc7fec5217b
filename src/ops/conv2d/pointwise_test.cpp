#include "ops/conv2d/pointwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/philox.h"
#include "ops/conv2d/conv_checks.h"
#include "ops/conv2d/gather_conv.h"
#include "ops/drawn_floats.h"

namespace tri::ops {
namespace {

// Channels that fill panels and that do not, several samples or strips of one in a unit, one chunk
// and many.
struct PointwiseCase {
  Shape in;
  int64_t out, samples;
};
const std::vector<PointwiseCase> kPointwiseCases = {{{1, 1, 37}, 10, 5},   {{7, 7, 24}, 40, 13},
                                                    {{6, 5, 17}, 150, 4},  {{12, 11, 32}, 144, 9},
                                                    {{40, 37, 16}, 96, 3}, {{3, 3, 160}, 320, 30}};

class PointwiseTest : public testing::TestWithParam<PointwiseCase> {
 protected:
  PointwiseTest() : n(GetParam().samples) {
    const Shape in = GetParam().in;
    g = {in, {in.h, in.w, GetParam().out}, 1, 1, 1, 1, 0, 0, 1};
    x = drawn_floats(1, n * g.in.elements());
    dy = drawn_floats(2, n * g.out.elements());
    const auto oihw = drawn_floats(3, g.out.c * g.in.c);
    panels.resize(static_cast<size_t>(g.weight_count()));
    pack_weights(g, oihw.data(), panels.data());
    source.stored = {x.data(), Format::kF32, g.in.c, g.in.c, g.in.pixels()};
    grad.grad = {dy.data(), Format::kF32, g.out.c, g.out.c, g.out.pixels()};
    grad.value.stored = grad.grad;
    grad.value.activation = Activation::kRelu;
  }
  void expect_the_bits_of_two(Products products);
  Sink sink(std::vector<float>& dx, Format format, bool accumulate) const {
    return {dx.data(), format, g.in.c, g.in.c, g.in.pixels(), accumulate};
  }
  ConvGeometry g;
  int64_t n;
  std::vector<float> x, dy, panels;
  Source source;
  GradSource grad;
};

TEST_P(PointwiseTest, a_joint_pass_has_the_bits_of_two) { expect_the_bits_of_two(Products::kF32); }

TEST_P(PointwiseTest, a_joint_pass_over_pairs_has_the_bits_of_two) {
  if (products_for(Format::kBf16) != Products::kBf16)
    GTEST_SKIP() << "the machine has no products of bf16";
  expect_the_bits_of_two(Products::kBf16);
}

void PointwiseTest::expect_the_bits_of_two(Products products) {
  const OuterPlan outer(g, n, 0, products, products == Products::kBf16);
  const PointwisePlan plan(outer);
  const GatherPlan gather(g, Direction::kBackwardData, n, products);
  Weights weights{panels.data()};
  if (products == Products::kBf16) weights.working = Format::kBf16;
  std::vector<float> partial(panels.size(), NAN);
  for (const size_t threads : {1, 3}) {
    base::ThreadPool pool(threads);
    const size_t own = outer.shared_bytes() + threads * outer.worker_bytes();
    std::vector<std::byte> scratch(
        std::max(own + plan.shared_bytes(outer) + threads * plan.worker_bytes(),
                 gather.scratch_bytes(threads)));
    Keep alone_w(g.weight_count());
    conv_backward_weights(outer, source, grad, nullptr, partial.data(), alone_w, scratch.data(),
                          pool);
    for (const Format format : {Format::kF32, Format::kBf16}) {
      for (const bool accumulate : {false, true}) {
        std::vector<float> alone(x.size(), 0.25f), joined = alone;
        conv_backward_data(gather, grad, weights, sink(alone, format, accumulate), scratch.data(),
                           pool);
        PointwiseData data(outer, plan, weights, sink(joined, format, accumulate),
                           scratch.data() + own, pool);
        Keep joined_w(g.weight_count());
        conv_backward_weights(outer, source, grad, nullptr, partial.data(), joined_w,
                              scratch.data(), pool, &data);
        EXPECT_EQ(alone, joined) << numeric::spec(format).name << (accumulate ? " added" : "");
        EXPECT_EQ(alone_w.grad, joined_w.grad);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(shapes, PointwiseTest, testing::ValuesIn(kPointwiseCases));

TEST(pointwise_choice, takes_1x1_of_stride_1_in_one_group) {
  ConvGeometry g{{4, 4, 8}, {4, 4, 8}, 1, 1, 1, 1, 0, 0, 1};
  EXPECT_TRUE(g.pointwise());
  g.groups = 2;
  EXPECT_FALSE(g.pointwise());
  g.groups = 1;
  g.stride_w = 2;
  EXPECT_FALSE(g.pointwise());
  g.stride_w = 1;
  g.kernel_h = 3;
  EXPECT_FALSE(g.pointwise());
}

}  // namespace
}  // namespace tri::ops
