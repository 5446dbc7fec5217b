#include "ops/avg_pool/avg_pool.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/window/pool_cases.h"
#include "ops/window/pool_ref.h"
#include "simd/convert.h"
#include "simd/target.h"

namespace tri::ops {
namespace {

class AvgPoolTest : public testing::TestWithParam<PoolCase> {
 protected:
  AvgPoolTest() : w(GetParam().window()), n(GetParam().samples) {
    x = pool_draws(1, n * w.in.elements());
    dy = pool_draws(2, n * w.out.elements());
    x_source.stored = pool_stored(x.data(), Format::kF32, w.in);
    dy_source.grad = pool_stored(dy.data(), Format::kF32, w.out);
  }
  std::vector<float> forward(base::ThreadPool& pool, const Source& src, bool include_pad) {
    const AvgPoolPlan plan(w, include_pad, Pass::kForward, n);
    std::vector<std::byte> scratch(plan.worker_bytes() * pool.threads());
    std::vector<float> y(dy.size(), NAN);
    const Sink sink{y.data(), Format::kF32, w.out.c, w.out.c, w.out.pixels()};
    avg_pool_forward(plan, src, sink, scratch.data(), pool);
    return y;
  }
  void backward(base::ThreadPool& pool, bool include_pad, std::vector<float>& dx, bool accumulate) {
    const AvgPoolPlan plan(w, include_pad, Pass::kBackward, n);
    std::vector<std::byte> scratch(plan.worker_bytes() * pool.threads());
    const Sink sink{dx.data(), Format::kF32, w.in.c, w.in.c, w.in.pixels(), accumulate};
    avg_pool_backward(plan, dy_source, sink, scratch.data(), pool);
  }
  std::vector<float> backward(base::ThreadPool& pool, bool include_pad) {
    std::vector<float> dx(x.size(), NAN);
    backward(pool, include_pad, dx, false);
    return dx;
  }
  Window w;
  int64_t n;
  std::vector<float> x, dy;
  Source x_source;
  GradSource dy_source;
};

TEST_P(AvgPoolTest, agrees_with_the_definition_on_every_target) {
  base::ThreadPool pool(2);
  std::vector<double> y(dy.size()), dx(x.size());
  // Operands in [-1, 1]: one rounding per addition of a sum below the number of taps, which is then
  // divided; three more for the share. Backward, so many windows cover a pixel at the most.
  const double bound = static_cast<double>(w.kernel_h * w.kernel_w + 4) * 0x1p-24;
  for (const bool include_pad : {false, true}) {
    reference::avg_pool_forward(w, include_pad, n, x.data(), y.data());
    reference::avg_pool_backward(w, include_pad, n, dy.data(), dx.data());
    for (const std::string_view target : simd::runnable_targets()) {
      ASSERT_TRUE(simd::force_target(target));
      const auto got_y = forward(pool, x_source, include_pad), got_dx = backward(pool, include_pad);
      for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], double{got_y[i]}, bound) << i;
      for (size_t i = 0; i < dx.size(); ++i) ASSERT_NEAR(dx[i], double{got_dx[i]}, bound) << i;
    }
  }
  ASSERT_TRUE(simd::force_target("auto"));
}

TEST_P(AvgPoolTest, same_bits_for_any_number_of_threads) {
  base::ThreadPool one(1);
  const auto y = forward(one, x_source, true), dx = backward(one, true);
  for (const size_t threads : {2, 3, 8}) {
    base::ThreadPool pool(threads);
    EXPECT_EQ(y, forward(pool, x_source, true));
    EXPECT_EQ(dx, backward(pool, true));
  }
}

TEST_P(AvgPoolTest, reads_narrow_formats_through_the_transform) {
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
    EXPECT_EQ(forward(pool, src, true), forward(pool, same, true)) << numeric::spec(format).name;
  }
}

TEST_P(AvgPoolTest, accumulates_into_what_is_there) {
  base::ThreadPool pool(2);
  const auto before = pool_draws(5, n * w.in.elements());
  const auto dx = backward(pool, false);
  auto got = before;
  backward(pool, false, got, true);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], before[i] + dx[i]) << i;
}

INSTANTIATE_TEST_SUITE_P(shapes, AvgPoolTest, testing::ValuesIn(kPoolCases),
                         [](const auto& shape) { return shape.param.name; });

}  // namespace
}  // namespace tri::ops
