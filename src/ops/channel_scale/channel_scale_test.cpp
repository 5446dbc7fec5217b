#include "ops/channel_scale/channel_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/philox.h"
#include "ops/drawn_floats.h"
#include "simd/target_fixture.h"

namespace tri::ops {
namespace {

class ChannelScale : public simd::TargetTest {};

TEST_P(ChannelScale, gives_both_gradients_in_place_and_added) {
  constexpr int64_t kSamples = 3;
  // One tile and several.
  for (const tensor::Shape& shape : {tensor::Shape{2, 3, 5}, tensor::Shape{40, 23, 41}}) {
    const RowTiles tiles(kSamples, shape);
    const int64_t count = kSamples * shape.elements(), pixels = shape.pixels();
    const std::vector<float> x = drawn_floats(1, count), du = drawn_floats(2, count);
    const std::vector<float> f = drawn_floats(3, kSamples * shape.c),
                             there = drawn_floats(4, kSamples * shape.c);
    std::vector<double> df(there.begin(), there.end());
    std::vector<float> dx(du);
    for (size_t i = 0; i < du.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      const auto k = static_cast<size_t>(at / shape.elements() * shape.c + at % shape.c);
      df[k] += double{du[i]} * double{std::max(x[i], 0.0f)};
      dx[i] = du[i] * f[k];
    }
    std::vector<float> first;
    for (const size_t threads : {1, 2, 3, 8}) {
      base::ThreadPool pool(threads);
      std::vector<float> scratch(threads * channel_scale_worker_bytes(tiles) / 4);
      std::vector<float> in_place = du, factor_grad = there;
      GradSource grad;
      grad.grad = {in_place.data(), Format::kF32, shape.c, shape.c, pixels};
      Source source;
      source.stored = {x.data(), Format::kF32, shape.c, shape.c, pixels};
      source.activation = Activation::kRelu;
      channel_scale_backward(tiles, grad, source, f.data(),
                             {in_place.data(), Format::kF32, shape.c, shape.c, pixels, false},
                             {factor_grad.data(), Format::kF32, shape.c, shape.c, 1, true},
                             reinterpret_cast<std::byte*>(scratch.data()), pool);
      EXPECT_EQ(in_place, dx);
      std::vector<float> alone = there;
      grad.grad.data = du.data();
      channel_scale_backward(tiles, grad, source, f.data(), {},
                             {alone.data(), Format::kF32, shape.c, shape.c, 1, true},
                             reinterpret_cast<std::byte*>(scratch.data()), pool);
      EXPECT_EQ(factor_grad, alone);
      if (first.empty()) first = factor_grad;
      EXPECT_EQ(first, factor_grad);
      // fp32 sums of numbers below 1 over all pixels: a random walk of roundings.
      const auto n = static_cast<double>(pixels);
      for (size_t k = 0; k < df.size(); ++k)
        ASSERT_NEAR(double{factor_grad[k]}, df[k], 4 * n * 0x1p-24) << k;
    }
  }
}

TRI_FOR_EACH_TARGET(ChannelScale);

}  // namespace
}  // namespace tri::ops
