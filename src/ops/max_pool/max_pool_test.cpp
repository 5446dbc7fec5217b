#include "ops/max_pool/max_pool.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/window/pool_cases.h"
#include "ops/window/pool_ref.h"
#include "simd/convert.h"
#include "simd/target.h"

namespace tri::ops {
namespace {

class MaxPoolTest : public testing::TestWithParam<PoolCase> {
 protected:
  struct Forward {
    std::vector<float> y;
    std::vector<uint8_t> argmax;
    bool operator==(const Forward&) const = default;
  };
  MaxPoolTest() : w(GetParam().window()), n(GetParam().samples) {
    // Few different values, so that windows hold equals.
    x = pool_draws(1, n * w.in.elements());
    for (float& v : x) v = std::round(v * 4.0f);
    dy = pool_draws(2, n * w.out.elements());
    x_source.stored = pool_stored(x.data(), Format::kF32, w.in);
    dy_source.grad = pool_stored(dy.data(), Format::kF32, w.out);
  }
  Forward forward(base::ThreadPool& pool, const Source& src) {
    const MaxPoolPlan plan(w, Pass::kForward, n);
    std::vector<std::byte> scratch(plan.worker_bytes() * pool.threads());
    Forward result{std::vector<float>(dy.size(), NAN), std::vector<uint8_t>(plan.argmax_bytes())};
    const Sink sink{result.y.data(), Format::kF32, w.out.c, w.out.c, w.out.pixels()};
    max_pool_forward(plan, src, sink, result.argmax.data(), scratch.data(), pool);
    return result;
  }
  std::vector<float> again(base::ThreadPool& pool, const Source& src,
                           const std::vector<uint8_t>& argmax) {
    const MaxPoolPlan plan(w, Pass::kForward, n);
    std::vector<float> y(dy.size(), NAN);
    max_pool_again(plan, src, {y.data(), Format::kF32, w.out.c, w.out.c, w.out.pixels()},
                   argmax.data(), pool);
    return y;
  }
  void backward(base::ThreadPool& pool, const std::vector<uint8_t>& argmax, std::vector<float>& dx,
                bool accumulate) {
    const MaxPoolPlan plan(w, Pass::kBackward, n);
    std::vector<std::byte> scratch(plan.worker_bytes() * pool.threads());
    const Sink sink{dx.data(), Format::kF32, w.in.c, w.in.c, w.in.pixels(), accumulate};
    max_pool_backward(plan, dy_source, argmax.data(), sink, scratch.data(), pool);
  }
  std::vector<float> backward(base::ThreadPool& pool, const std::vector<uint8_t>& argmax) {
    std::vector<float> dx(x.size(), NAN);
    backward(pool, argmax, dx, false);
    return dx;
  }
  // The forward pass chooses exactly what the definition does, NaN as well.
  void expect_definition(base::ThreadPool& pool) {
    std::vector<double> y(dy.size()), dx(x.size());
    std::vector<int64_t> index(dy.size());
    reference::max_pool_forward(w, n, x.data(), y.data(), index.data());
    reference::max_pool_backward(w, n, dy.data(), index.data(), dx.data());
    const Forward got = forward(pool, x_source);
    for (size_t i = 0; i < y.size(); ++i)
      ASSERT_TRUE(y[i] == double{got.y[i]} || (std::isnan(y[i]) && std::isnan(got.y[i]))) << i;
    const auto got_dx = backward(pool, got.argmax);
    // A pixel sums at most so many gradients of magnitude 1.
    const double windows = static_cast<double>(w.kernel_h * w.kernel_w);
    for (size_t i = 0; i < dx.size(); ++i)
      ASSERT_NEAR(dx[i], double{got_dx[i]}, windows * 0x1p-23) << i;
  }
  Window w;
  int64_t n;
  std::vector<float> x, dy;
  Source x_source;
  GradSource dy_source;
};

TEST_P(MaxPoolTest, agrees_with_the_definition_on_every_target) {
  base::ThreadPool pool(2);
  for (const std::string_view target : simd::runnable_targets()) {
    ASSERT_TRUE(simd::force_target(target));
    expect_definition(pool);
  }
  ASSERT_TRUE(simd::force_target("auto"));
}

TEST_P(MaxPoolTest, the_last_nan_of_a_window_wins) {
  base::ThreadPool pool(2);
  for (size_t i = 0; i < x.size(); i += 5) x[i] = i % 3 == 0 ? NAN : -INFINITY;
  expect_definition(pool);
}

TEST_P(MaxPoolTest, same_bits_for_any_number_of_threads) {
  base::ThreadPool one(1);
  const Forward y = forward(one, x_source);
  const auto dx = backward(one, y.argmax);
  for (const size_t threads : {2, 3, 8}) {
    base::ThreadPool pool(threads);
    EXPECT_EQ(y, forward(pool, x_source));
    EXPECT_EQ(dx, backward(pool, y.argmax));
  }
}

TEST_P(MaxPoolTest, chooses_the_same_taps_again) {
  base::ThreadPool pool(2);
  const Forward first = forward(pool, x_source);
  EXPECT_EQ(again(pool, x_source, first.argmax), first.y);
  // Upside down every other choice would win.
  for (float& v : x) v = -v;
  std::vector<float> upside_down = first.y;
  for (float& v : upside_down) v = -v;
  EXPECT_EQ(again(pool, x_source, first.argmax), upside_down);
}

TEST_P(MaxPoolTest, reads_narrow_formats_through_the_transform) {
  base::ThreadPool pool(2);
  for (const Format format : {Format::kBf16, Format::kF16, Format::kF8e5}) {
    std::vector<std::byte> narrow(x.size() * numeric::storage_bytes(format));
    std::vector<float> rounded(x.size());
    simd::encode(format, x.data(), narrow.data(), x.size());
    simd::decode(format, narrow.data(), rounded.data(), x.size());
    for (float& v : rounded) v = std::max(v, 0.0f);
    Source src, same;
    src.stored = pool_stored(narrow.data(), format, w.in);
    src.activation = Activation::kRelu;
    same.stored = pool_stored(rounded.data(), Format::kF32, w.in);
    EXPECT_EQ(forward(pool, src), forward(pool, same)) << numeric::spec(format).name;
  }
}

TEST_P(MaxPoolTest, accumulates_into_what_is_there) {
  base::ThreadPool pool(2);
  const Forward y = forward(pool, x_source);
  const auto before = pool_draws(5, n * w.in.elements());
  const auto dx = backward(pool, y.argmax);
  auto got = before;
  backward(pool, y.argmax, got, true);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], before[i] + dx[i]) << i;
}

INSTANTIATE_TEST_SUITE_P(shapes, MaxPoolTest, testing::ValuesIn(kPoolCases),
                         [](const auto& shape) { return shape.param.name; });

TEST(MaxPoolDeathTest, refuses_windows_whose_taps_do_not_fit_a_byte) {
  const Window window{{16, 16, 1}, {1, 1, 1}, 16, 16};
  EXPECT_DEATH(MaxPoolPlan(window, Pass::kForward, 1), "kernel 16x16");
}

}  // namespace
}  // namespace tri::ops
