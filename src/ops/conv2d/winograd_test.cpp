#include "ops/conv2d/winograd.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "base/philox.h"
#include "ops/conv2d/conv_ref.h"
#include "ops/conv2d/gather_conv.h"
#include "ops/conv2d/winograd_checks.h"
#include "ops/drawn_floats.h"
#include "simd/convert.h"
#include "simd/target.h"

namespace tri::ops {
namespace {

struct WinogradCase {
  std::string name;
  Shape in;
  int64_t out, padding, samples;
};

// Odd maps end in half a patch, odd channels in part of a panel.
const std::vector<WinogradCase> kWinogradCases = {
    {"even", {8, 8, 32}, 32, 1, 3},       {"odd_map", {9, 11, 33}, 51, 1, 4},
    {"unpadded", {10, 11, 40}, 32, 0, 2}, {"wide_padding", {8, 9, 32}, 49, 2, 2},
    {"wide", {8, 39, 36}, 34, 1, 1},      {"many", {8, 8, 34}, 32, 1, 23},
    {"strips", {31, 33, 64}, 32, 1, 1},   {"small", {4, 5, 16}, 17, 1, 9},
};

ConvGeometry geometry_of(const WinogradCase& c) {
  const int64_t shrink = 2 * c.padding - 2;
  return {c.in, {c.in.h + shrink, c.in.w + shrink, c.out}, 3, 3, 1, 1, c.padding, c.padding, 1};
}

// Note [Error of Winograd]. Every result is A^T [sum over C channels of (G g G^T)(B^T d B)] A. Each
// number that enters the final sum has passed at most 2 roundings in B^T d B (one addition per
// axis), 4 in G g G^T, 1 in its product without FMA, C in the sum, 4 in A^T . A and 1 at the bias.
// So a result is off by at most gamma(C + 12) times the same expression on absolute values, with
// gamma(n) = n u / (1 - n u) and u = 2^-24. Its absolute values are up to 64 / 9 of those of the
// sum over taps, which in turn has 9 C roundings: both bounds are of one size.
using Matrix = std::array<std::array<double, 4>, 4>;
constexpr double kSource[4][4] = {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}};
constexpr double kFilter[4][3] = {{1, 0, 0}, {.5, .5, .5}, {.5, -.5, .5}, {0, 0, 1}};
constexpr double kResult[2][4] = {{1, 1, 1, 0}, {0, 1, 1, 1}};  // magnitudes

// A transform of values, or of magnitudes by magnitudes.
template <size_t kIn, class At>
Matrix both_axes(const double (&axis)[4][kIn], double (*of)(double), At at) {
  Matrix out{};
  for (size_t y = 0; y < 4; ++y)
    for (size_t x = 0; x < 4; ++x)
      for (size_t i = 0; i < kIn; ++i)
        for (size_t j = 0; j < kIn; ++j) out[y][x] += of(axis[y][i] * axis[x][j]) * of(at(i, j));
  return out;
}

struct Problem {
  Shape src, dst;
  int64_t padding, samples;
  const std::vector<float>& x;
  std::vector<float> filters;  // (dst channel, src channel, 3, 3)
};

// Of every result the sum of term(f s) over the products that enter it.
std::vector<double> over_products(const Problem& p, double (*of)(double), double (*term)(double)) {
  std::vector<Matrix> filters;
  for (int64_t f = 0; f < p.dst.c * p.src.c; ++f)
    filters.push_back(both_axes(kFilter, of, [&](size_t i, size_t j) {
      return double{p.filters[static_cast<size_t>(f) * 9 + i * 3 + j]};
    }));
  std::vector<double> out(static_cast<size_t>(p.samples * p.dst.elements()));
  for (int64_t n = 0; n < p.samples; ++n) {
    for (int64_t y = 0; y < p.dst.h; y += 2) {
      for (int64_t x = 0; x < p.dst.w; x += 2) {
        for (int64_t c = 0; c < p.src.c; ++c) {
          const Matrix patch = both_axes(kSource, of, [&](size_t i, size_t j) {
            const int64_t sy = y + static_cast<int64_t>(i) - p.padding;
            const int64_t sx = x + static_cast<int64_t>(j) - p.padding;
            if (sy < 0 || sy >= p.src.h || sx < 0 || sx >= p.src.w) return 0.0;
            const int64_t at = ((n * p.src.h + sy) * p.src.w + sx) * p.src.c + c;
            return double{p.x[static_cast<size_t>(at)]};
          });
          for (int64_t k = 0; k < p.dst.c; ++k) {
            const Matrix& filter = filters[static_cast<size_t>(k * p.src.c + c)];
            for (size_t a = 0; a < 4; ++a) {
              const int64_t ry = y + static_cast<int64_t>(a / 2);
              const int64_t rx = x + static_cast<int64_t>(a % 2);
              if (ry >= p.dst.h || rx >= p.dst.w) continue;
              double sum = 0;
              for (size_t i = 0; i < 4; ++i)
                for (size_t j = 0; j < 4; ++j)
                  sum += kResult[a / 2][i] * kResult[a % 2][j] * term(filter[i][j] * patch[i][j]);
              out[static_cast<size_t>(((n * p.dst.h + ry) * p.dst.w + rx) * p.dst.c + k)] += sum;
            }
          }
        }
      }
    }
  }
  return out;
}

// What each result may be off by.
std::vector<double> bounds(const Problem& p, Products products) {
  const double steps = static_cast<double>(p.src.c + 12) * 0x1p-24;
  const double rounded = products == Products::kBf16 ? kTwoPairRoundings : 1;
  const double gamma = rounded * (1 + steps / (1 - steps)) - 1;
  auto out = over_products(p, magnitude, itself);
  for (double& bound : out) bound = gamma * bound + 1e-30;
  return out;
}

// How large the squares of all errors are together, with pairs.
double squares(const Problem& p) {
  double sum = 0;
  for (const double of_one : over_products(p, itself, square)) sum += kPairSquares * of_one;
  return sum;
}

class WinogradTest : public testing::TestWithParam<WinogradCase> {
 protected:
  WinogradTest() : g(geometry_of(GetParam())), n(GetParam().samples) {
    x = drawn_floats(1, n * g.in.elements());
    dy = drawn_floats(2, n * g.out.elements());
    oihw = drawn_floats(3, g.out.c * g.in.c * g.taps());
    bias = drawn_floats(4, g.out.c);
    pack();
    input.stored = {x.data(), Format::kF32, g.in.c, g.in.c, g.in.pixels()};
    grad.grad = {dy.data(), Format::kF32, g.out.c, g.out.c, g.out.pixels()};
  }
  void pack() {
    panels.resize(static_cast<size_t>(g.weight_count()));
    pack_weights(g, oihw.data(), panels.data());
  }
  // From here on; weights become what the layer would see.
  void multiply_pairs() {
    products = Products::kBf16;
    std::vector<uint16_t> narrow(oihw.size());
    simd::encode(Format::kBf16, oihw.data(), narrow.data(), oihw.size());
    simd::decode(Format::kBf16, narrow.data(), oihw.data(), oihw.size());
    pack();
  }
  Problem forward_problem() const { return {g.in, g.out, g.padding_h, n, x, oihw}; }
  Problem backward_problem() const {
    std::vector<float> turned(oihw.size());  // (in, out, 3, 3), taps backwards
    for (int64_t o = 0; o < g.out.c; ++o)
      for (int64_t i = 0; i < g.in.c; ++i)
        for (int64_t t = 0; t < 9; ++t)
          turned[static_cast<size_t>((i * g.out.c + o) * 9 + 8 - t)] =
              oihw[static_cast<size_t>((o * g.in.c + i) * 9 + t)];
    return {g.out, g.in, 2 - g.padding_h, n, dy, turned};
  }
  std::vector<double> true_forward() const {
    std::vector<double> y(static_cast<size_t>(n * g.out.elements()));
    reference::conv_forward(g, n, x.data(), oihw.data(), bias.data(), y.data());
    return y;
  }
  std::vector<double> true_backward() const {
    std::vector<double> dx(x.size());
    reference::conv_backward_data(g, n, dy.data(), oihw.data(), dx.data());
    return dx;
  }
  void expect_within_bounds(std::string_view target) {
    base::ThreadPool pool(2);
    const auto want_y = true_forward(), want_dx = true_backward();
    const auto got_y = forward(pool, input), got_dx = backward(pool);
    const auto y_bounds = bounds(forward_problem(), products);
    const auto dx_bounds = bounds(backward_problem(), products);
    for (size_t i = 0; i < want_y.size(); ++i)
      ASSERT_NEAR(want_y[i], double{got_y[i]}, y_bounds[i] + 0x1p-24) << target << " y at " << i;
    for (size_t i = 0; i < want_dx.size(); ++i)
      ASSERT_NEAR(want_dx[i], double{got_dx[i]}, dx_bounds[i]) << target << " dx at " << i;
  }
  std::vector<float> forward(base::ThreadPool& pool, const Source& src) {
    const WinogradPlan plan(g, Direction::kForward, n, products);
    std::vector<std::byte> scratch(plan.scratch_bytes(pool.threads()));
    std::vector<float> y(static_cast<size_t>(n * g.out.elements()), NAN);
    conv_forward(plan, src, {panels.data()}, bias.data(), sink(y, g.out), scratch.data(), pool);
    return y;
  }
  std::vector<float> backward(base::ThreadPool& pool, bool accumulate = false) {
    const WinogradPlan plan(g, Direction::kBackwardData, n, products);
    std::vector<std::byte> scratch(plan.scratch_bytes(pool.threads()));
    std::vector<float> dx(static_cast<size_t>(n * g.in.elements()), accumulate ? 1.0f : NAN);
    Sink to = sink(dx, g.in);
    to.accumulate = accumulate;
    conv_backward_data(plan, grad, {panels.data()}, to, scratch.data(), pool);
    return dx;
  }
  static Sink sink(std::vector<float>& to, const Shape& s) {
    return {to.data(), Format::kF32, s.c, s.c, s.pixels()};
  }
  ConvGeometry g;
  int64_t n;
  Products products = Products::kF32;
  std::vector<float> x, dy, oihw, bias, panels;
  Source input;
  GradSource grad;
};

TEST_P(WinogradTest, stays_within_its_bound_on_every_target) {
  ASSERT_TRUE(can_winograd(g));
  for (const std::string_view target : simd::runnable_targets()) {
    ASSERT_TRUE(simd::force_target(target));
    expect_within_bounds(target);
  }
  ASSERT_TRUE(simd::force_target("auto"));
}

TEST_P(WinogradTest, pairs_stay_within_their_bound) {
  if (!simd::multiplies_bf16()) GTEST_SKIP() << "the machine has no products of bf16";
  multiply_pairs();
  expect_within_bounds("pairs");
}

TEST_P(WinogradTest, pairs_are_rounded_once) {
  if (!simd::multiplies_bf16()) GTEST_SKIP() << "the machine has no products of bf16";
  multiply_pairs();
  base::ThreadPool pool(2);
  const auto error = [](const std::vector<double>& want, const std::vector<float>& got) {
    double sum = 0;
    for (size_t i = 0; i < want.size(); ++i) sum += square(want[i] - got[i]);
    return sum;
  };
  EXPECT_LE(error(true_forward(), forward(pool, input)), squares(forward_problem()));
  EXPECT_LE(error(true_backward(), backward(pool)), squares(backward_problem()));
}

TEST_P(WinogradTest, same_bits_for_any_number_of_threads_and_part_of_the_batch) {
  for (const bool pairs : {false, true}) {
    if (pairs && !simd::multiplies_bf16()) continue;
    if (pairs) multiply_pairs();
    n = GetParam().samples;
    base::ThreadPool one(1);
    const auto y = forward(one, input), dx = backward(one);
    for (const size_t threads : {2, 3, 8}) {
      base::ThreadPool pool(threads);
      EXPECT_EQ(y, forward(pool, input));
      EXPECT_EQ(dx, backward(pool));
    }
    n = 1;
    const auto first = forward(one, input);
    EXPECT_TRUE(std::equal(first.begin(), first.end(), y.begin()));
  }
}

TEST_P(WinogradTest, reads_any_format_and_adds_to_what_is_there) {
  base::ThreadPool pool(2);
  for (const Format format : {Format::kBf16, Format::kF16, Format::kF8e5}) {
    std::vector<std::byte> narrow(x.size() * numeric::storage_bytes(format));
    std::vector<float> rounded(x.size());
    simd::encode(format, x.data(), narrow.data(), x.size());
    simd::decode(format, narrow.data(), rounded.data(), x.size());
    Source stored = input, same = input;
    stored.stored.data = narrow.data();
    stored.stored.format = format;
    same.stored.data = rounded.data();
    stored.activation = same.activation = Activation::kRelu;
    EXPECT_EQ(forward(pool, stored), forward(pool, same)) << numeric::spec(format).name;
  }
  const auto dx = backward(pool), more = backward(pool, true);
  for (size_t i = 0; i < dx.size(); ++i) ASSERT_EQ(more[i], 1.0f + dx[i]);
}

INSTANTIATE_TEST_SUITE_P(shapes, WinogradTest, testing::ValuesIn(kWinogradCases),
                         [](const auto& test) { return test.param.name; });

TEST(winograd_choice, takes_3x3_of_stride_1_on_maps_from_8x8_with_32_channels) {
  const ConvGeometry good{{8, 8, 32}, {8, 8, 32}, 3, 3, 1, 1, 1, 1, 1};
  EXPECT_TRUE(suits_winograd(good));
  ConvGeometry other = good;
  other.stride_h = 2;
  EXPECT_FALSE(suits_winograd(other));
  other = good;
  other.in = other.out = {7, 8, 256};
  EXPECT_FALSE(suits_winograd(other));
  other = good;
  other.groups = 2;
  EXPECT_FALSE(suits_winograd(other));
  EXPECT_FALSE(can_winograd(other));
  other = good;
  other.in.c = 31;
  EXPECT_FALSE(suits_winograd(other));
  EXPECT_TRUE(can_winograd(other));  // where somebody asks for it
  other = good;
  other.kernel_w = 1;
  EXPECT_FALSE(suits_winograd(other));
}

TEST(winograd_choice, takes_smaller_maps_of_whole_patches_with_few_filters) {
  const auto suits = [](int64_t height, int64_t width, int64_t in, int64_t out) {
    return suits_winograd({{height, width, in}, {height, width, out}, 3, 3, 1, 1, 1, 1, 1});
  };
  EXPECT_TRUE(suits(4, 4, 128, 128));
  EXPECT_TRUE(suits(6, 4, 64, 256));
  EXPECT_FALSE(suits(4, 4, 128, 256));
  EXPECT_FALSE(suits(5, 6, 64, 64));
  EXPECT_FALSE(suits(6, 7, 64, 64));
  EXPECT_FALSE(suits(2, 2, 64, 64));
  EXPECT_FALSE(suits(4, 4, 16, 64));
}

TEST(winograd_choice, of_pairs_asks_for_more_channels_the_smaller_the_map_is) {
  const auto suits = [](int64_t map, int64_t channels) {
    const Shape shape{map, map, channels};
    return suits_winograd({shape, shape, 3, 3, 1, 1, 1, 1, 1}, Products::kBf16);
  };
  EXPECT_TRUE(suits(16, 64));
  EXPECT_FALSE(suits(16, 48));
  EXPECT_FALSE(suits(32, 32));
  EXPECT_TRUE(suits(8, 64));
  EXPECT_FALSE(suits(6, 64));
  EXPECT_TRUE(suits(4, 128));
  EXPECT_FALSE(suits(4, 64));
  EXPECT_FALSE(suits(2, 512));
  EXPECT_TRUE(suits(15, 96));  // patches that are filled in part
  EXPECT_FALSE(suits(15, 64));
  EXPECT_TRUE(suits(7, 160));
  EXPECT_FALSE(suits(7, 128));
}

}  // namespace
}  // namespace tri::ops
