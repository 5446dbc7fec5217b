#include "ops/conv2d/winograd_outer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/ceil_div.h"
#include "ops/conv2d/conv_checks.h"
#include "ops/conv2d/conv_ref.h"
#include "ops/conv2d/winograd_checks.h"
#include "ops/drawn_floats.h"
#include "simd/convert.h"
#include "simd/target.h"

namespace tri::ops {
namespace {

struct OuterCase {
  std::string name;
  Shape in;
  int64_t out, padding, samples, ghost;
};

// Odd maps end in half a tile; "strips" cuts one sample into several units, "many" has ghosts,
// "slots" more spans than slots. The last two have so many channels that units are not apart.
const std::vector<OuterCase> kOuterCases = {
    {"even", {8, 8, 32}, 32, 1, 3, 0},       {"odd_map", {9, 11, 34}, 51, 1, 4, 2},
    {"unpadded", {10, 11, 40}, 32, 0, 2, 0}, {"wide_padding", {8, 9, 32}, 49, 2, 2, 1},
    {"wide", {8, 39, 36}, 34, 1, 1, 0},      {"many", {8, 8, 34}, 32, 1, 60, 20},
    {"strips", {47, 33, 64}, 32, 1, 1, 0},   {"small", {4, 5, 16}, 17, 1, 9, 3},
    {"slots", {8, 8, 64}, 64, 1, 48, 3},     {"together", {8, 9, 98}, 80, 1, 9, 3},
    {"long", {33, 22, 96}, 66, 1, 2, 0},
};

// Note [Error of Winograd backward]. An element of dW is G^T [sum over patches of
// (B^T d B)(A g A^T)] G, part by part. What enters it has passed 2 roundings in each of the two
// transforms, 1 in its product without FMA, one for every patch of its ghost batch (of its span
// where units are apart), 4 in G^T . G and one for every ghost or span, and the same expression on
// absolute values bounds what is rounded. With pairs both operands of a product are rounded to bf16
// besides, once each: see Note [Error of Winograd with pairs] in winograd_checks.h.
constexpr double kSourceAxis[4][4] = {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}};
constexpr double kGradientAxis[4][2] = {{1, 0}, {1, 1}, {1, -1}, {0, -1}};
constexpr double kTapsAxis[3][4] = {{1, .5, .5, 0}, {0, .5, .5, 0}, {0, .5, .5, 1}};

class WinogradOuterTest : public testing::TestWithParam<OuterCase> {
 protected:
  WinogradOuterTest() {
    const OuterCase& c = GetParam();
    const int64_t shrink = 2 * c.padding - 2;
    g = {c.in, {c.in.h + shrink, c.in.w + shrink, c.out}, 3, 3, 1, 1, c.padding, c.padding, 1};
    n = c.samples;
    x = drawn_floats(1, n * g.in.elements());
    dy = drawn_floats(2, n * g.out.elements());
    input.stored = whole_tensor(x.data(), Format::kF32, g.in);
    grad.grad = whole_tensor(dy.data(), Format::kF32, g.out);
  }

  // Of samples [first, first + count), continued from `initial`.
  std::vector<float> stored(base::ThreadPool& pool, int64_t first, int64_t count,
                            const float* initial = nullptr) {
    const WinogradOuterPlan plan(g, count, GetParam().ghost, products);
    std::vector<std::byte> scratch(plan.shared_bytes() + plan.worker_bytes() * pool.threads());
    std::vector<float> partial(static_cast<size_t>(g.weight_count()));
    Keep keep(g.weight_count());
    Source from = input;
    from.stored.data = x.data() + first * g.in.elements();
    GradSource d = grad;
    d.grad.data = dy.data() + first * g.out.elements();
    conv_backward_weights(plan, from, d, initial, partial.data(), keep, scratch.data(), pool);
    for (const int taken : keep.taken) EXPECT_EQ(taken, 1);
    return keep.grad;
  }
  std::vector<float> oihw(const std::vector<float>& panels) const {
    std::vector<float> out(static_cast<size_t>(g.out.c * g.in.c * 9));
    unpack_weights(g, panels.data(), out.data());
    return out;
  }

  static double value(const std::vector<float>& of, const Shape& s, int64_t sample, int64_t row,
                      int64_t column, int64_t c) {
    if (row < 0 || row >= s.h || column < 0 || column >= s.w) return 0;
    return double{of[static_cast<size_t>(((sample * s.h + row) * s.w + column) * s.c + c)]};
  }
  // Pairs are tried where the machine and the plan have them.
  bool can_pair() const {
    return simd::multiplies_bf16() && can_winograd_weights(g, Products::kBf16);
  }
  std::vector<double> over_products(double (*of)(double), double (*term)(double)) const;
  double steps() const;

  ConvGeometry g;
  int64_t n;
  Products products = Products::kF32;
  std::vector<float> x, dy;
  Source input;
  GradSource grad;
};

// One tensor through a transform, values or magnitudes: [frequency][channel] of one patch.
template <size_t kIn, class At>
std::vector<double> through(const double (&axis)[4][kIn], int64_t channels, double (*of)(double),
                            At at) {
  std::vector<double> out(static_cast<size_t>(16 * channels));
  for (size_t f = 0; f < 16; ++f)
    for (int64_t c = 0; c < channels; ++c)
      for (size_t i = 0; i < kIn; ++i)
        for (size_t j = 0; j < kIn; ++j)
          out[f * static_cast<size_t>(channels) + static_cast<size_t>(c)] +=
              of(axis[f / 4][i] * axis[f % 4][j]) *
              of(at(static_cast<int64_t>(i), static_cast<int64_t>(j), c));
  return out;
}

// Of every element of dW (OIHW) the sum of term(what a product is worth in it).
std::vector<double> WinogradOuterTest::over_products(double (*of)(double),
                                                     double (*term)(double)) const {
  const auto in = static_cast<size_t>(g.in.c), out = static_cast<size_t>(g.out.c);
  std::vector<double> sums(16 * out * in);
  for (int64_t s = 0; s < n; ++s) {
    for (int64_t row = 0; row < g.out.h; row += 2) {
      for (int64_t column = 0; column < g.out.w; column += 2) {
        const auto a = through(kSourceAxis, g.in.c, of, [&](int64_t i, int64_t j, int64_t c) {
          return value(x, g.in, s, row + i - g.padding_h, column + j - g.padding_w, c);
        });
        const auto b = through(kGradientAxis, g.out.c, of, [&](int64_t i, int64_t j, int64_t c) {
          return value(dy, g.out, s, row + i, column + j, c);
        });
        for (size_t f = 0; f < 16; ++f)
          for (size_t o = 0; o < out; ++o)
            for (size_t i = 0; i < in; ++i)
              sums[(f * out + o) * in + i] += term(b[f * out + o] * a[f * in + i]);
      }
    }
  }
  std::vector<double> taps(out * in * 9);
  for (size_t both = 0; both < out * in; ++both)
    for (size_t t = 0; t < 9; ++t)
      for (size_t f = 0; f < 16; ++f)
        taps[both * 9 + t] +=
            term(kTapsAxis[t / 3][f / 4] * kTapsAxis[t % 3][f % 4]) * sums[f * out * in + both];
  return taps;
}

// Roundings of fp32 on the way, in units of one.
double WinogradOuterTest::steps() const {
  const WinogradOuterPlan plan(g, n, GetParam().ghost, products);
  size_t together =
      base::ceil_div(plan.units.size(), static_cast<size_t>(plan.ghosts));  // in one sum
  if (plan.apart) together = plan.spans.front().end;
  const auto each = static_cast<double>(plan.unit_length * (products == Products::kBf16 ? 2 : 1));
  const size_t parts = plan.apart ? plan.spans.size() : static_cast<size_t>(plan.ghosts);
  return (each * static_cast<double>(together) + static_cast<double>(parts) + 9) * 0x1p-24;
}

TEST_P(WinogradOuterTest, stays_within_its_bound_on_every_target) {
  ASSERT_TRUE(can_winograd_weights(g, Products::kF32));
  std::vector<double> want(static_cast<size_t>(g.out.c * g.in.c * 9));
  reference::conv_backward_weights(g, n, x.data(), dy.data(), want.data());
  const auto sums = over_products(magnitude, itself);
  base::ThreadPool pool(2);
  const auto expect_within = [&](double gamma, std::string_view target) {
    const auto got = oihw(stored(pool, 0, n));
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(want[i], double{got[i]}, gamma * sums[i]) << target << " " << i;
  };
  for (const std::string_view target : simd::runnable_targets()) {
    ASSERT_TRUE(simd::force_target(target));
    expect_within(steps() / (1 - steps()), target);
  }
  ASSERT_TRUE(simd::force_target("auto"));
  if (!can_pair()) return;
  products = Products::kBf16;
  expect_within(kTwoPairRoundings / (1 - steps()) - 1, "pairs");
}

TEST_P(WinogradOuterTest, pairs_are_rounded_once) {
  if (!can_pair()) GTEST_SKIP() << "no products of bf16 on this machine, or of this shape";
  products = Products::kBf16;
  std::vector<double> want(static_cast<size_t>(g.out.c * g.in.c * 9));
  reference::conv_backward_weights(g, n, x.data(), dy.data(), want.data());
  base::ThreadPool pool(2);
  const auto got = oihw(stored(pool, 0, n));
  double expected = 0, error = 0;
  for (const double squares : over_products(itself, square)) expected += kPairSquares * squares;
  for (size_t i = 0; i < want.size(); ++i) error += square(want[i] - got[i]);
  EXPECT_LE(error, expected);
}

TEST_P(WinogradOuterTest, same_bits_for_any_number_of_threads) {
  for (const Products multiplied : {Products::kF32, Products::kBf16}) {
    if (multiplied == Products::kBf16 && !can_pair()) continue;
    products = multiplied;
    base::ThreadPool one(1);
    const auto want = stored(one, 0, n);
    for (const size_t threads : {2, 3, 8}) {
      base::ThreadPool pool(threads);
      EXPECT_EQ(want, stored(pool, 0, n));
    }
  }
}

TEST_P(WinogradOuterTest, reads_any_format) {
  base::ThreadPool pool(2);
  for (const Format format : {Format::kBf16, Format::kF16, Format::kF8e5}) {
    std::vector<std::byte> narrow(x.size() * numeric::storage_bytes(format));
    std::vector<float> rounded(x.size());
    simd::encode(format, x.data(), narrow.data(), x.size());
    simd::decode(format, narrow.data(), rounded.data(), x.size());
    const WinogradOuterPlan plan(g, n, GetParam().ghost);
    std::vector<std::byte> scratch(plan.shared_bytes() + plan.worker_bytes() * pool.threads());
    std::vector<float> partial(static_cast<size_t>(g.weight_count()));
    Keep of_narrow(g.weight_count()), of_rounded(g.weight_count());
    Source from{whole_tensor(narrow.data(), format, g.in), {}, Activation::kRelu};
    conv_backward_weights(plan, from, grad, nullptr, partial.data(), of_narrow, scratch.data(),
                          pool);
    from.stored = whole_tensor(rounded.data(), Format::kF32, g.in);
    conv_backward_weights(plan, from, grad, nullptr, partial.data(), of_rounded, scratch.data(),
                          pool);
    EXPECT_EQ(of_narrow.grad, of_rounded.grad) << numeric::spec(format).name;
  }
}

TEST(WinogradOuterPlan, sums_units_apart_if_channels_are_few) {
  for (const OuterCase& c : kOuterCases) {
    const int64_t shrink = 2 * c.padding - 2;
    const ConvGeometry g{
        c.in, {c.in.h + shrink, c.in.w + shrink, c.out}, 3, 3, 1, 1, c.padding, c.padding, 1};
    const WinogradOuterPlan plan(g, c.samples, c.ghost);
    EXPECT_EQ(plan.apart, c.name != "together" && c.name != "long") << c.name;
    EXPECT_EQ(plan.whole_gradient(), c.name == "together" || c.name == "slots") << c.name;
  }
}

INSTANTIATE_TEST_SUITE_P(shapes, WinogradOuterTest, testing::ValuesIn(kOuterCases), kCaseName);

class WinogradGhostsTest : public WinogradOuterTest {};

TEST_P(WinogradGhostsTest, one_by_one_have_the_bits_of_the_whole) {
  const int64_t ghost = GetParam().ghost;
  base::ThreadPool pool(2);
  for (const Products multiplied : {Products::kF32, Products::kBf16}) {
    if (multiplied == Products::kBf16 && !can_pair()) continue;
    products = multiplied;
    std::vector<float> sums = stored(pool, 0, ghost);
    for (int64_t first = ghost; first < n; first += ghost)
      sums = stored(pool, first, ghost, sums.data());
    EXPECT_EQ(sums, stored(pool, 0, n));
  }
}

INSTANTIATE_TEST_SUITE_P(shapes, WinogradGhostsTest,
                         testing::ValuesIn(those(kOuterCases,
                                                 [](const OuterCase& c) { return c.ghost > 0; })),
                         kCaseName);

TEST(winograd_weights_choice, takes_an_even_number_of_input_channels_and_pairs_from_8x8_on) {
  ConvGeometry geometry{{8, 8, 32}, {8, 8, 33}, 3, 3, 1, 1, 1, 1, 1};
  EXPECT_TRUE(can_winograd_weights(geometry, Products::kF32));
  EXPECT_TRUE(can_winograd_weights(geometry, Products::kBf16));
  geometry.in.h = geometry.out.h = 7;
  EXPECT_TRUE(can_winograd_weights(geometry, Products::kF32));
  EXPECT_FALSE(can_winograd_weights(geometry, Products::kBf16));
  geometry.in.c = 33;
  EXPECT_FALSE(can_winograd_weights(geometry, Products::kF32));
}

}  // namespace
}  // namespace tri::ops
