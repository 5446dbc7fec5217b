#include "ops/global_avg_pool/global_pool.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/window/pool_cases.h"
#include "simd/convert.h"
#include "simd/target.h"

namespace tri::ops {
namespace {

struct GlobalPoolCase {
  std::string name;
  Shape in;
  int64_t samples;
};
const std::vector<GlobalPoolCase> kGlobalPoolCases = {
    {"vector", {1, 1, 37}, 3},     {"seven", {7, 7, 130}, 2}, {"odd", {3, 5, 5}, 4},
    {"long_row", {2, 900, 70}, 1}, {"many", {2, 1, 700}, 50}, {"high", {60, 9, 64}, 2}};

class GlobalPoolTest : public testing::TestWithParam<GlobalPoolCase> {
 protected:
  GlobalPoolTest() : in(GetParam().in), n(GetParam().samples) {
    x = pool_draws(1, n * in.elements());
    dy = pool_draws(2, n * in.c);
    x_source.stored = pool_stored(x.data(), Format::kF32, in);
    dy_source.grad = pool_stored(dy.data(), Format::kF32, {1, 1, in.c});
  }
  std::vector<float> forward(base::ThreadPool& pool, const Source& src) {
    const GlobalPoolPlan plan(in, n);
    std::vector<std::byte> scratch(plan.worker_bytes() * pool.threads());
    std::vector<float> y(dy.size(), NAN);
    const Sink sink{y.data(), Format::kF32, in.c, in.c, 1};
    global_pool_forward(plan, src, sink, scratch.data(), pool);
    return y;
  }
  void backward(base::ThreadPool& pool, std::vector<float>& dx, bool accumulate) {
    const GlobalPoolPlan plan(in, n);
    std::vector<std::byte> scratch(plan.worker_bytes() * pool.threads());
    const Sink sink{dx.data(), Format::kF32, in.c, in.c, in.pixels(), accumulate};
    global_pool_backward(plan, dy_source, sink, scratch.data(), pool);
  }
  Shape in;
  int64_t n;
  std::vector<float> x, dy;
  Source x_source;
  GradSource dy_source;
};

TEST_P(GlobalPoolTest, is_the_mean_on_every_target) {
  base::ThreadPool pool(2);
  const auto pixels = static_cast<double>(in.pixels());
  // h + w additions of values in [-1, 1], then the share.
  const double bound = static_cast<double>(in.h + in.w + 2) * 0x1p-24;
  std::vector<double> mean(dy.size(), 0.0);
  for (size_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    mean[static_cast<size_t>(at / in.elements() * in.c + at % in.c)] += double{x[i]} / pixels;
  }
  for (const std::string_view target : simd::runnable_targets()) {
    ASSERT_TRUE(simd::force_target(target));
    const auto y = forward(pool, x_source);
    for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(mean[i], double{y[i]}, bound) << i;
  }
  ASSERT_TRUE(simd::force_target("auto"));
}

TEST_P(GlobalPoolTest, spreads_the_gradient_and_accumulates) {
  base::ThreadPool pool(2);
  std::vector<float> dx(x.size(), NAN), sum = x;
  backward(pool, dx, false);
  backward(pool, sum, true);
  for (size_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const float g = dy[static_cast<size_t>(at / in.elements() * in.c + at % in.c)];
    ASSERT_FLOAT_EQ(dx[i], g / static_cast<float>(in.pixels())) << i;
    ASSERT_EQ(sum[i], x[i] + dx[i]) << i;
  }
  std::vector<float> addend(dy.size(), NAN);
  global_pool_addend(in, n, dy_source, addend.data(), pool);
  for (size_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    ASSERT_EQ(dx[i], addend[static_cast<size_t>(at / in.elements() * in.c + at % in.c)]) << i;
  }
}

TEST_P(GlobalPoolTest, same_bits_for_any_number_of_threads) {
  base::ThreadPool one(1);
  const auto y = forward(one, x_source);
  for (const size_t threads : {2, 3, 8}) {
    base::ThreadPool pool(threads);
    EXPECT_EQ(y, forward(pool, x_source));
  }
}

TEST_P(GlobalPoolTest, reads_narrow_formats_through_the_transform) {
  base::ThreadPool pool(2);
  for (const Format format : {Format::kBf16, Format::kF16, Format::kF8e5}) {
    std::vector<std::byte> narrow(x.size() * numeric::storage_bytes(format));
    std::vector<float> rounded(x.size());
    simd::encode(format, x.data(), narrow.data(), x.size());
    simd::decode(format, narrow.data(), rounded.data(), x.size());
    for (float& v : rounded) v = std::max(v, 0.0f);
    Source src, same;
    src.stored = pool_stored(narrow.data(), format, in);
    src.activation = Activation::kRelu;
    same.stored = pool_stored(rounded.data(), Format::kF32, in);
    EXPECT_EQ(forward(pool, src), forward(pool, same)) << numeric::spec(format).name;
  }
}

INSTANTIATE_TEST_SUITE_P(shapes, GlobalPoolTest, testing::ValuesIn(kGlobalPoolCases),
                         [](const auto& shape) { return shape.param.name; });

}  // namespace
}  // namespace tri::ops
