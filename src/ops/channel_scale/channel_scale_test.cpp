#include "ops/channel_scale/channel_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "ops/drawn_floats.h"
#include "simd/convert.h"
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

// Formats that kernels read where they lie, together or not, and such that are decoded first.
TEST_P(ChannelScale, sums_for_the_factor_and_for_the_norm_in_one_pass) {
  constexpr int64_t kSamples = 3, kGhost = 2;
  const auto scale_of = [](Format format) { return takes_scale(format) ? 4.0f : 1.0f; };
  const std::pair<Format, Format> kFormats[] = {
      {Format::kF32, Format::kF32},  {Format::kBf16, Format::kBf16}, {Format::kBf16, Format::kF32},
      {Format::kF32, Format::kBf16}, {Format::kF8e5, Format::kBf16}, {Format::kF16, Format::kF8e5}};
  // Less than a chain, and several; channels that are shared out.
  int cases = 0;
  for (const tensor::Shape& shape :
       {tensor::Shape{2, 3, 5}, tensor::Shape{20, 23, 41}, tensor::Shape{8, 8, 133}})
    for (const auto& [x_format, grad_format] : kFormats) {
      const bool silu = ++cases % 3 != 0, of_half = x_format != Format::kF32;
      const int64_t count = kSamples * shape.elements(), pixels = shape.pixels();
      const auto rounded = [&](uint64_t seed, Format format, std::vector<std::byte>& bytes) {
        std::vector<float> values = drawn_floats(seed, count);
        for (float& value : values) value *= scale_of(format);
        bytes.resize(values.size() * numeric::storage_bytes(format));
        simd::encode(format, values.data(), bytes.data(), values.size());
        simd::decode(format, bytes.data(), values.data(), values.size());
        for (float& value : values) value /= scale_of(format);
        return values;
      };
      std::vector<std::byte> y_bytes, du_bytes;
      const std::vector<float> y = rounded(1, x_format, y_bytes);
      const std::vector<float> du = rounded(2, grad_format, du_bytes);
      const std::vector<float> scale = drawn_floats(3, 2 * shape.c),
                               shift = drawn_floats(4, 2 * shape.c),
                               mean = drawn_floats(5, 2 * shape.c);
      Source x;
      x.stored = {y_bytes.data(), x_format, shape.c, shape.c, pixels, scale_of(x_format)};
      x.norm = {scale.data(), shift.data(), shape.c, kGhost};
      x.activation = silu ? Activation::kSilu : Activation::kSigmoid;
      x.of_half = of_half;
      const Stored grad{du_bytes.data(), grad_format, shape.c,
                        shape.c,         pixels,      scale_of(grad_format)};
      const auto each = static_cast<size_t>(kSamples * shape.c);
      std::vector<double> want(5 * each);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t sample = i / shape.elements(), c = i % shape.c;
        const auto ghost = static_cast<size_t>(sample / kGhost * shape.c + c);
        const double v = double{y[static_cast<size_t>(i)]}, d = double{du[static_cast<size_t>(i)]};
        const double z = double{scale[ghost]} * v + double{shift[ghost]};
        const double s = 1 / (1 + std::exp(-z));
        const double slope = s * (silu ? 1 + z * (1 - s) : 1 - s);
        const double off = v - double{mean[ghost]};
        const double terms[] = {d * s * (silu ? z : 1), d * slope, d * slope * off, slope,
                                slope * off};
        for (size_t which = 0; which < 5; ++which)
          want[which * each + static_cast<size_t>(sample * shape.c + c)] += terms[which];
      }
      std::vector<float> first;
      for (const size_t threads : {1, 2, 3}) {
        base::ThreadPool pool(threads);
        std::vector<float> scratch(
            threads * channel_scale_sums_worker_bytes(shape.c, x_format, grad_format) / 4);
        std::vector<float> got(5 * each);
        channel_scale_sums(kSamples, grad, x, mean.data(),
                           {got.data(), Format::kF32, shape.c, shape.c, 1}, got.data() + each,
                           reinterpret_cast<std::byte*>(scratch.data()), pool);
        if (first.empty()) first = got;
        EXPECT_EQ(first, got);
        // Terms below 2.2, each off by its roundings and 2^-21 of the derivative, or 2^-16, and
        // those of their chain.
        const double each_off = (128 + 32) * 0x1p-24 + (of_half ? 0x1p-16 : 0);
        const double error = 2.2 * static_cast<double>(pixels) * each_off;
        for (int64_t sample = 0; sample < kSamples; ++sample)
          for (int64_t c = 0; c < shape.c; ++c)
            for (int64_t which = 0; which < 5; ++which) {
              const auto reference = static_cast<size_t>((which * kSamples + sample) * shape.c + c);
              const auto at =
                  which == 0 ? static_cast<size_t>(sample * shape.c + c)
                             : each + static_cast<size_t>((sample * 4 + which - 1) * shape.c + c);
              ASSERT_NEAR(double{got[at]}, want[reference], error)
                  << numeric::spec(x_format).name << " sum " << which << " channel " << c;
            }
      }
    }
}

TRI_FOR_EACH_TARGET(ChannelScale);

}  // namespace
}  // namespace tri::ops
