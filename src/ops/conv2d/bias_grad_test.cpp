#include "ops/conv2d/bias_grad.h"

#include <gtest/gtest.h>

#include <vector>

#include "ops/drawn_floats.h"
#include "simd/target_fixture.h"

namespace tri::ops {
namespace {

class BiasGrad : public simd::TargetTest {};

// Maps of one pixel, more samples than are loaded at a time, and factors by which samples differ.
TEST_P(BiasGrad, sums_over_samples_and_pixels_onto_what_is_there) {
  struct Case {
    int64_t samples, pixels, channels;
    bool factors;
  };
  for (const Case& c : {Case{150, 1, 37, false}, Case{150, 1, 37, true}, Case{3, 150, 70, false},
                        Case{2, 9, 300, true}}) {
    const std::vector<float> grad = drawn_floats(1, c.samples * c.pixels * c.channels),
                             factor = drawn_floats(2, c.samples),
                             there = drawn_floats(3, c.channels);
    GradSource source;
    source.grad = {grad.data(), Format::kF32, c.channels, c.channels, c.pixels};
    source.value.stored = source.grad;
    if (c.factors) source.value.sample_factor = factor.data();
    std::vector<double> want(there.begin(), there.end());
    for (size_t i = 0; i < grad.size(); ++i) {
      const auto sample = i / static_cast<size_t>(c.pixels * c.channels);
      want[i % want.size()] += double{grad[i]} * (c.factors ? double{factor[sample]} : 1.0);
    }
    const std::vector<float> first = [&] {
      std::vector<float> of_one_thread;
      for (const size_t threads : {1, 2, 3, 8}) {
        base::ThreadPool pool(threads);
        std::vector<std::byte> scratch(threads * bias_grad_worker_bytes());
        std::vector<float> sums = there;
        bias_grad(c.samples, c.pixels, c.channels, source, sums.data(), scratch.data(), pool);
        if (of_one_thread.empty()) of_one_thread = sums;
        EXPECT_EQ(of_one_thread, sums) << threads;
      }
      return of_one_thread;
    }();
    // A rounding per addition of numbers below 1, at sums below their number.
    const auto count = static_cast<double>(c.samples * c.pixels);
    for (size_t k = 0; k < want.size(); ++k)
      EXPECT_NEAR(double{first[k]}, want[k], (count + 2) * (count + 2) * 0x1p-25) << k;
  }
}

TRI_FOR_EACH_TARGET(BiasGrad);

}  // namespace
}  // namespace tri::ops
