#include "exec/curvature/weight_gram.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/philox.h"

namespace tri::exec {
namespace {

using Form = WeightGram::Form;
using Numbers = std::vector<double>;

struct Layer {
  const char* name;
  ops::ConvGeometry geometry;
};

ops::ConvGeometry conv(tensor::Shape in, int64_t out, int64_t kernel, int64_t stride,
                       int64_t padding, int64_t groups) {
  const auto side = [&](int64_t n) { return (n + 2 * padding - kernel) / stride + 1; };
  return {in,    {side(in.h), side(in.w), out}, kernel, kernel, stride, stride, padding, padding,
          groups};
}

const Layer kLayers[] = {
    {"linear", {{1, 1, 37}, {1, 1, 21}, 1, 1, 1, 1, 0, 0, 1}},
    {"flattened", {{3, 2, 5}, {1, 1, 18}, 3, 2, 1, 1, 0, 0, 1}},
    {"padded", conv({5, 4, 7}, 17, 3, 1, 1, 1)},
    {"strided", conv({7, 6, 20}, 9, 3, 2, 1, 1)},
    {"grouped", conv({4, 4, 12}, 40, 3, 1, 1, 2)},
    {"wide padding", conv({2, 3, 4}, 5, 5, 1, 3, 1)},
    {"several chunks", conv({4, 4, 120}, 150, 3, 1, 1, 1)},
    {"several strips", conv({20, 19, 30}, 8, 3, 1, 1, 1)},
    {"depthwise", conv({6, 5, 33}, 33, 3, 2, 1, 33)},
};

// dW_i in double precision, [output channel][tap][input channel of the group].
Numbers sample_gradient(const ops::ConvGeometry& g, const float* x, const float* d) {
  Numbers all(static_cast<size_t>(g.out.c * g.taps() * g.group_in()), 0.0);
  for (int64_t y = 0; y < g.out.h; ++y)
    for (int64_t z = 0; z < g.out.w; ++z)
      for (int64_t o = 0; o < g.out.c; ++o)
        for (int64_t tap = 0; tap < g.taps(); ++tap) {
          const int64_t in_y = y * g.stride_h - g.padding_h + tap / g.kernel_w;
          const int64_t in_x = z * g.stride_w - g.padding_w + tap % g.kernel_w;
          if (in_y < 0 || in_y >= g.in.h || in_x < 0 || in_x >= g.in.w) continue;
          for (int64_t i = 0; i < g.group_in(); ++i) {
            const int64_t channel = o / g.group_out() * g.group_in() + i;
            all[static_cast<size_t>((o * g.taps() + tap) * g.group_in() + i)] +=
                double{x[(in_y * g.in.w + in_x) * g.in.c + channel]} *
                double{d[(y * g.out.w + z) * g.out.c + o]};
          }
        }
  return all;
}

TEST(WeightGram, is_the_product_of_sample_gradients_in_every_form) {
  constexpr int64_t kSamples = 5;
  for (const Layer& layer : kLayers) {
    const ops::ConvGeometry& g = layer.geometry;
    base::Stream random(3, base::Purpose::kInit, static_cast<uint64_t>(g.out.elements()));
    std::vector<float> x(static_cast<size_t>(kSamples * g.in.elements()));
    std::vector<float> d(static_cast<size_t>(kSamples * g.out.elements()));
    for (float& v : x) v = random.uniform() - 0.3f;
    for (float& v : d) v = random.uniform() - 0.4f;
    std::vector<Numbers> grads;
    for (int64_t n = 0; n < kSamples; ++n)
      grads.push_back(
          sample_gradient(g, x.data() + n * g.in.elements(), d.data() + n * g.out.elements()));
    ops::Source source;
    source.stored = {x.data(), numeric::Format::kF32, g.in.c, g.in.c, g.in.pixels()};
    ops::GradSource grad;
    grad.grad = {d.data(), numeric::Format::kF32, g.out.c, g.out.c, g.out.pixels()};

    std::vector<Form> forms = {Form::kDirect, Form::kGhost};
    if (g.depthwise()) forms = {Form::kDepthwise};
    for (const Form form : forms) {
      std::vector<std::vector<double>> seen;
      for (const size_t threads : {1, 2, 3}) {
        const WeightGram plan(g, kSamples, 3, form);
        // Some more bytes, so that a step beyond the end would show.
        constexpr size_t kBehind = 4096;
        const size_t promised = plan.scratch_bytes();
        std::vector<std::byte> scratch(promised + 64 + kBehind, std::byte{0x7f});
        base::ThreadPool pool(threads);
        seen.emplace_back(kSamples * kSamples, 1.0);
        auto* aligned = reinterpret_cast<std::byte*>(
            (reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
        plan.add(source, grad, seen.back().data(), aligned, pool);
        EXPECT_EQ(seen.back(), seen.front()) << layer.name;
        for (size_t i = 0; i < kBehind; ++i)
          ASSERT_EQ(aligned[promised + i], std::byte{0x7f}) << layer.name << " " << i;
      }
      for (int64_t i = 0; i < kSamples; ++i)
        for (int64_t j = 0; j <= i; ++j) {
          double want = 0, size = 0;
          for (size_t k = 0; k < grads[0].size(); ++k) {
            const double a = grads[static_cast<size_t>(i)][k], b = grads[static_cast<size_t>(j)][k];
            want += a * b;
            size += a * a + b * b;
          }
          // Terms of a sum of T and a sum of up to 256 numbers in fp32, both with their signs.
          const double length = 256 + static_cast<double>(g.out.pixels());
          EXPECT_NEAR(seen.front()[static_cast<size_t>(i * kSamples + j)] - 1.0, want,
                      0x1p-24 * std::sqrt(length) * 16 * size)
              << layer.name << " form " << static_cast<int>(form) << " " << i << " " << j;
        }
    }
  }
}

TEST(WeightGram, takes_the_cheaper_form) {
  const auto form = [](const ops::ConvGeometry& g) { return WeightGram(g, 32, 2).form(); };
  EXPECT_EQ(form(conv({1, 1, 512}, 512, 3, 1, 1, 1)), Form::kGhost);
  EXPECT_EQ(form(conv({2, 2, 256}, 256, 3, 1, 1, 1)), Form::kGhost);
  EXPECT_EQ(form(conv({8, 8, 64}, 64, 3, 1, 1, 1)), Form::kDirect);
  EXPECT_EQ(form(conv({8, 8, 64}, 64, 3, 1, 1, 64)), Form::kDepthwise);
}

}  // namespace
}  // namespace tri::exec
