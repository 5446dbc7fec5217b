#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/philox.h"
#include "numeric/round.h"
#include "ops/conv2d/conv_checks.h"
#include "ops/conv2d/conv_ref.h"
#include "ops/conv2d/gather_conv.h"
#include "ops/conv2d/outer_conv.h"
#include "ops/drawn_floats.h"
#include "simd/convert.h"
#include "simd/target.h"

namespace tri::ops {
namespace {

struct ConvCase {
  std::string name;
  Shape in;
  int64_t out, kernel_h, kernel_w, stride, padding, groups, samples;
};

ConvGeometry geometry_of(const ConvCase& c) {
  const auto extent = [&](int64_t in, int64_t k) {
    return (in + 2 * c.padding - k) / c.stride + 1;
  };
  return {c.in,       {extent(c.in.h, c.kernel_h), extent(c.in.w, c.kernel_w), c.out},
          c.kernel_h, c.kernel_w,
          c.stride,   c.stride,
          c.padding,  c.padding,
          c.groups};
}

// Odd sizes on purpose: channels that fill no panel, maps smaller than the kernel, one sample.
const std::vector<ConvCase> kConvCases = {
    {"one", {1, 1, 1}, 1, 1, 1, 1, 0, 1, 1},
    {"linear", {1, 1, 37}, 10, 1, 1, 1, 0, 1, 5},
    {"plain", {5, 7, 6}, 16, 3, 3, 1, 1, 1, 7},
    {"stride", {9, 8, 5}, 19, 3, 3, 2, 1, 1, 6},
    {"stem", {17, 15, 3}, 20, 7, 7, 2, 3, 1, 3},
    {"tiny_map", {1, 1, 33}, 40, 3, 3, 1, 1, 1, 13},
    {"two", {2, 2, 18}, 34, 3, 3, 1, 1, 1, 8},
    {"pointwise", {6, 5, 17}, 48, 1, 1, 1, 0, 1, 4},
    {"skip", {7, 7, 8}, 12, 1, 1, 2, 0, 1, 3},
    {"stride3", {11, 10, 4}, 7, 2, 3, 3, 1, 1, 2},
    {"whole", {4, 3, 5}, 21, 4, 3, 1, 0, 1, 9},
    {"grouped", {6, 6, 12}, 40, 3, 3, 1, 1, 4, 3},
    {"wide_map", {3, 70, 4}, 16, 3, 3, 1, 1, 1, 2},
    {"large_pad", {3, 3, 2}, 3, 3, 3, 1, 2, 1, 2},
    {"deep", {3, 3, 70}, 90, 3, 3, 1, 1, 1, 25},
    {"even", {9, 8, 6}, 20, 3, 3, 2, 1, 1, 5},
    {"halves", {6, 6, 16}, 40, 3, 3, 1, 1, 2, 3},
    {"wide", {1, 1, 2101}, 34, 1, 1, 1, 0, 1, 3},
    {"many", {4, 5, 18}, 34, 3, 3, 2, 1, 1, 70},
    // Units apart: several taps, windows, and more slots than lie side by side.
    {"apart", {24, 23, 18}, 20, 3, 3, 1, 1, 1, 5},
    {"large_stem", {45, 47, 3}, 12, 3, 3, 2, 1, 1, 4},
    {"slots", {32, 17, 112}, 120, 1, 1, 1, 0, 1, 14},
};

class ConvTest : public testing::TestWithParam<ConvCase> {
 protected:
  explicit ConvTest(Products multiplied = Products::kF32)
      : g(geometry_of(GetParam())), n(GetParam().samples), products(multiplied) {
    x = drawn_floats(1, n * g.in.elements());
    dy = drawn_floats(2, n * g.out.elements());
    oihw = drawn_floats(3, g.out.c * g.group_in() * g.taps());
    bias = drawn_floats(4, g.out.c);
    if (products == Products::kBf16)  // then the definition multiplies the same numbers
      for (std::vector<float>* operand : {&x, &dy, &oihw})
        simd::round_to(Format::kBf16, operand->data(), operand->data(), operand->size());
    panels.resize(static_cast<size_t>(g.weight_count()));
    pack_weights(g, oihw.data(), panels.data());
  }
  Weights weights() const {
    if (given.data != nullptr) return given;
    Weights w{panels.data()};
    if (products == Products::kBf16) w.working = Format::kBf16;
    return w;
  }
  std::vector<float> run_forward(base::ThreadPool& pool, const Source& src) {
    const GatherPlan plan(g, Direction::kForward, n, products);
    std::vector<std::byte> scratch(plan.scratch_bytes(pool.threads()));
    std::vector<float> y(static_cast<size_t>(n * g.out.elements()), NAN);
    const Sink sink{y.data(), Format::kF32, g.out.c, g.out.c, g.out.pixels()};
    conv_forward(plan, src, weights(), bias.data(), sink, scratch.data(), pool);
    return y;
  }
  std::vector<float> run_backward_data(base::ThreadPool& pool) {
    const GatherPlan plan(g, Direction::kBackwardData, n, products);
    std::vector<std::byte> scratch(plan.scratch_bytes(pool.threads()));
    std::vector<float> dx(static_cast<size_t>(n * g.in.elements()), NAN);
    const Sink sink{dx.data(), Format::kF32, g.in.c, g.in.c, g.in.pixels()};
    GradSource src;
    src.grad = whole_tensor(dy.data(), Format::kF32, g.out);
    conv_backward_data(plan, src, weights(), sink, scratch.data(), pool);
    return dx;
  }
  std::vector<float> run_backward_weights(base::ThreadPool& pool, int64_t ghost, int64_t first,
                                          int64_t count, const float* initial) {
    const OuterPlan plan(g, count, ghost, products);
    std::vector<std::byte> scratch(plan.shared_bytes() + plan.worker_bytes() * pool.threads());
    std::vector<float> partial(panels.size(), NAN);
    Keep keep(g.weight_count());
    Source src;
    src.stored = whole_tensor(x.data() + first * g.in.elements(), Format::kF32, g.in);
    GradSource grad;
    grad.grad = whole_tensor(dy.data() + first * g.out.elements(), Format::kF32, g.out);
    conv_backward_weights(plan, src, grad, initial, partial.data(), keep, scratch.data(), pool);
    for (size_t i = 0; i < keep.taken.size(); ++i)
      EXPECT_LE(keep.taken[i], 1) << "element " << i << " handed over twice";
    for (int64_t i = 0; i < g.weight_count(); ++i) {  // panels are filled up with zeros
      const int64_t panel = i / g.panel_floats() % g.panels(), lane = i % kPanel;
      if (panel * kPanel + lane >= g.group_out() && keep.taken[static_cast<size_t>(i)] > 0) {
        EXPECT_EQ(keep.grad[static_cast<size_t>(i)], 0) << i;
      }
    }
    EXPECT_EQ(keep.bound >= 0, plan.bounded_gradient() && initial == nullptr);
    if (keep.bound >= 0) {
      float largest_x = 1, largest_g = 0;
      for (int64_t i = first * g.in.elements(); i < (first + count) * g.in.elements(); ++i)
        largest_x = std::max(largest_x, std::abs(x[static_cast<size_t>(i)]));
      for (int64_t i = first * g.out.elements(); i < (first + count) * g.out.elements(); ++i)
        largest_g = std::max(largest_g, std::abs(dy[static_cast<size_t>(i)]));
      const float rounding = products == Products::kBf16 ? (1 + 0x1p-8f) * (1 + 0x1p-8f) : 1;
      EXPECT_FLOAT_EQ(keep.bound, rounding * static_cast<float>(count * g.out.pixels()) *
                                      largest_x * largest_g);
      for (size_t i = 0; i < keep.grad.size(); ++i) {
        if (keep.taken[i] > 0) {
          EXPECT_LE(std::abs(keep.grad[i]), keep.bound);
        }
      }
    }
    return keep.grad;
  }
  // Against the definition, with the target that is active.
  void expect_agreement() {
    std::vector<double> y(static_cast<size_t>(n * g.out.elements()));
    std::vector<double> dx(x.size()), dw(oihw.size());
    reference::conv_forward(g, n, x.data(), oihw.data(), bias.data(), y.data());
    reference::conv_backward_data(g, n, dy.data(), oihw.data(), dx.data());
    reference::conv_backward_weights(g, n, x.data(), dy.data(), dw.data());
    base::ThreadPool pool(2);
    Source src;
    src.stored = whole_tensor(x.data(), Format::kF32, g.in);
    expect_near(y, run_forward(pool, src), conv_tolerance(g.taps() * g.group_in() + 1), "forward");
    expect_near(dx, run_backward_data(pool), conv_tolerance(g.taps() * g.group_out()),
                "backward data");
    std::vector<float> grad(oihw.size());
    unpack_weights(g, run_backward_weights(pool, 0, 0, n, nullptr).data(), grad.data());
    expect_near(dw, grad, conv_tolerance(n * g.out.pixels()), "backward weights");
  }
  void expect_same_bits_for_any_number_of_threads() {
    base::ThreadPool one(1);
    Source src;
    src.stored = whole_tensor(x.data(), Format::kF32, g.in);
    const auto y = run_forward(one, src), dx = run_backward_data(one);
    const auto dw = run_backward_weights(one, 2, 0, n, nullptr);
    const auto dw_of_four = run_backward_weights(one, 4, 0, n, nullptr);
    for (const size_t threads : {2, 3, 8}) {
      base::ThreadPool pool(threads);
      EXPECT_EQ(y, run_forward(pool, src));
      EXPECT_EQ(dx, run_backward_data(pool));
      EXPECT_EQ(dw, run_backward_weights(pool, 2, 0, n, nullptr));
      EXPECT_EQ(dw_of_four, run_backward_weights(pool, 4, 0, n, nullptr));
    }
  }
  void expect_the_bits_of_the_whole_batch_from_micro_batches() {
    base::ThreadPool pool(2);
    for (const int64_t ghost : {2, 3, 4})
      expect_no_difference(pool, ghost, std::max(ghost, n / (2 * ghost) * ghost));
  }
  void expect_no_difference(base::ThreadPool& pool, int64_t ghost, int64_t first) {
    if (first >= n) return;
    const auto whole = run_backward_weights(pool, ghost, 0, n, nullptr);
    const auto part = run_backward_weights(pool, ghost, 0, first, nullptr);
    EXPECT_EQ(whole, run_backward_weights(pool, ghost, first, n - first, part.data()));
  }
  void expect_any_format_to_be_read_as_if_rounded_before() {
    base::ThreadPool pool(2);
    for (const Format format :
         {Format::kBf16, Format::kF16, Format::kF16e6, Format::kF8e4b4, Format::kF8e5}) {
      std::vector<std::byte> narrow(x.size() * numeric::storage_bytes(format));
      std::vector<float> rounded(x.size());
      simd::encode(format, x.data(), narrow.data(), x.size());
      simd::decode(format, narrow.data(), rounded.data(), x.size());
      for (const Activation activation : {Activation::kNone, Activation::kRelu}) {
        Source src, same;
        src.stored = whole_tensor(narrow.data(), format, g.in);
        same.stored = whole_tensor(rounded.data(), Format::kF32, g.in);
        src.activation = same.activation = activation;
        EXPECT_EQ(run_forward(pool, src), run_forward(pool, same)) << numeric::spec(format).name;
      }
    }
  }
  ConvGeometry g;
  int64_t n;
  Products products;
  Weights given;  // instead of panels, if there are any
  std::vector<float> x, dy, oihw, bias, panels;
};

TEST_P(ConvTest, weights_survive_packing) {
  std::vector<float> back(oihw.size());
  unpack_weights(g, panels.data(), back.data());
  EXPECT_EQ(oihw, back);
}

TEST_P(ConvTest, agrees_with_the_definition_on_every_target) {
  for (const std::string_view target : simd::runnable_targets()) {
    ASSERT_TRUE(simd::force_target(target));
    expect_agreement();
  }
  ASSERT_TRUE(simd::force_target("auto"));
}

TEST_P(ConvTest, same_bits_for_any_number_of_threads) {
  expect_same_bits_for_any_number_of_threads();
}

TEST_P(ConvTest, reads_any_format_as_if_it_had_been_rounded_before) {
  expect_any_format_to_be_read_as_if_rounded_before();
}

class ConvGhostTest : public ConvTest {};

TEST_P(ConvGhostTest, micro_batches_cut_at_ghosts_give_the_bits_of_the_whole_batch) {
  expect_the_bits_of_the_whole_batch_from_micro_batches();
}

// Products of bf16, of numbers that are bf16 already.
class PairConvTest : public ConvTest {
 protected:
  PairConvTest() : ConvTest(Products::kBf16) {}
  void SetUp() override {
    if (!simd::multiplies_bf16()) GTEST_SKIP() << "the machine has no products of bf16";
  }
};

TEST_P(PairConvTest, agrees_with_the_definition) { expect_agreement(); }
TEST_P(PairConvTest, same_bits_for_any_number_of_threads) {
  expect_same_bits_for_any_number_of_threads();
}
TEST_P(PairConvTest, micro_batches_cut_at_ghosts_give_the_bits_of_the_whole_batch) {
  if (n < 4) GTEST_SKIP() << "nothing to cut";
  expect_the_bits_of_the_whole_batch_from_micro_batches();
}
TEST_P(PairConvTest, stored_bf16_weights_are_those_of_fp32) {
  base::ThreadPool pool(2);
  std::vector<uint16_t> stored(panels.size());
  simd::encode(Format::kBf16, panels.data(), stored.data(), panels.size());
  Source src;
  src.stored = whole_tensor(x.data(), Format::kF32, g.in);
  const auto y = run_forward(pool, src), dx = run_backward_data(pool);
  given = {stored.data(), Format::kBf16};
  given.working = Format::kBf16;
  EXPECT_EQ(y, run_forward(pool, src));
  EXPECT_EQ(dx, run_backward_data(pool));
}
// Operands of fp32 are rounded, and with them what bounds their products.
TEST_P(PairConvTest, bound_holds_for_operands_that_are_rounded_up) {
  base::ThreadPool pool(2);
  std::fill(x.begin(), x.end(), 1 + 0x1p-8f + 0x1p-20f);
  std::fill(dy.begin(), dy.end(), 1 + 0x1p-8f + 0x1p-20f);
  run_backward_weights(pool, 0, 0, n, nullptr);
}
TEST_P(PairConvTest, reads_any_format_as_if_it_had_been_rounded_before) {
  expect_any_format_to_be_read_as_if_rounded_before();
}

TEST(OuterPlan, sums_units_apart_whatever_the_batch) {
  for (const ConvCase& c : kConvCases) {
    for (const int64_t samples : {1, 2, 33}) {
      const OuterPlan plan(geometry_of(c), samples, 0);
      EXPECT_EQ(plan.apart, c.name == "apart" || c.name == "large_stem" || c.name == "slots")
          << c.name;
      if (c.name == "slots") {
        EXPECT_EQ(plan.chunks() > 1, samples == 33);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(shapes, ConvTest, testing::ValuesIn(kConvCases), kCaseName);
INSTANTIATE_TEST_SUITE_P(shapes, ConvGhostTest,
                         testing::ValuesIn(those(kConvCases,
                                                 [](const ConvCase& c) { return c.samples >= 4; })),
                         kCaseName);
INSTANTIATE_TEST_SUITE_P(shapes, PairConvTest, testing::ValuesIn(kConvCases), kCaseName);

}  // namespace
}  // namespace tri::ops
