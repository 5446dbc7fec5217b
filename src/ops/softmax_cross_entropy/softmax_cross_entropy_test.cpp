#include "ops/softmax_cross_entropy/softmax_cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/philox.h"
#include "simd/convert.h"

namespace tri::ops {
namespace {

struct Loss {
  LossSum sum;
  std::vector<float> grad;
};

Loss loss_of(const std::vector<float>& logits, const std::vector<int32_t>& labels, float smoothing,
             float grad_scale, size_t threads = 2, Format format = Format::kF32) {
  const auto samples = static_cast<int64_t>(labels.size());
  const LossPlan plan{samples, static_cast<int64_t>(logits.size()) / samples, smoothing};
  std::vector<double> scratch((plan.shared_bytes() + threads * plan.worker_bytes() + 7) / 8);
  std::vector<std::byte> stored(logits.size() * numeric::storage_bytes(format));
  simd::encode(format, logits.data(), stored.data(), logits.size());
  Source source;
  source.stored = {stored.data(), format, plan.classes, plan.classes, 1};
  Loss loss{{}, std::vector<float>(logits.size())};
  const Sink sink{loss.grad.data(), Format::kF32, plan.classes, plan.classes, 1};
  base::ThreadPool pool(threads);
  loss.sum = softmax_cross_entropy(plan, source, labels.data(), grad_scale, sink,
                                   reinterpret_cast<std::byte*>(scratch.data()), pool);
  return loss;
}

std::vector<float> draws(size_t count) {
  base::Stream stream(1, base::Purpose::kInit);
  std::vector<float> values(count);
  for (float& v : values) v = 6.0f * stream.uniform() - 3.0f;
  return values;
}

TEST(Loss, gradient_is_the_derivative_and_sums_to_zero) {
  constexpr size_t kClasses = 11, kSamples = 7;
  const std::vector<float> logits = draws(kClasses * kSamples);
  const std::vector<int32_t> labels = {0, 10, 3, 3, 7, 1, 5};
  for (const float smoothing : {0.0f, 0.1f, 1.0f}) {
    const Loss loss = loss_of(logits, labels, smoothing, 0.5f);
    for (size_t n = 0; n < kSamples; ++n) {
      double sum = 0;
      for (size_t k = 0; k < kClasses; ++k) sum += double{loss.grad[n * kClasses + k]};
      // Each of the eleven is rounded to fp32 once.
      EXPECT_NEAR(sum, 0.0, kClasses * 0x1p-25);
    }
    for (const size_t at : {size_t{0}, size_t{10}, size_t{25}, size_t{76}}) {
      // A power of two, so that logits move exactly; the loss is computed in double precision.
      std::vector<float> up = logits, down = logits;
      up[at] += 0x1p-10f;
      down[at] -= 0x1p-10f;
      const double width = double{up[at]} - double{down[at]};
      const double slope = (loss_of(up, labels, smoothing, 0.5f).sum.loss -
                            loss_of(down, labels, smoothing, 0.5f).sum.loss) /
                           width;
      EXPECT_NEAR(double{loss.grad[at]}, 0.5 * slope, 1e-6);  // h^2 / 6 of the third derivative
    }
  }
}

TEST(Loss, same_bits_for_any_number_of_threads_and_reads_any_format) {
  const std::vector<float> logits = draws(90);
  const std::vector<int32_t> labels = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::vector<float> rounded(logits.size());
  std::vector<std::byte> narrow(2 * logits.size());
  simd::encode(Format::kBf16, logits.data(), narrow.data(), logits.size());
  simd::decode(Format::kBf16, narrow.data(), rounded.data(), logits.size());
  const Loss one = loss_of(rounded, labels, 0.1f, 1.0f, 1);
  for (const size_t threads : {1, 2, 3, 8}) {
    const Loss other = loss_of(logits, labels, 0.1f, 1.0f, threads, Format::kBf16);
    EXPECT_EQ(one.sum.loss, other.sum.loss);
    EXPECT_EQ(one.grad, other.grad);
  }
}

TEST(Loss, survives_logits_beyond_the_range_of_exp) {
  const Loss loss = loss_of({1e4f, 0, 0, -1e4f, 1e4f, 0}, {0, 0}, 0.0f, 1.0f);
  EXPECT_DOUBLE_EQ(loss.sum.loss, 2e4);
  EXPECT_EQ(loss.grad, (std::vector<float>{0, 0, 0, -1, 1, 0}));
}

TEST(Loss, ranks_ties_by_the_lower_class) {
  const std::vector<float> even(8, 1.0f);
  for (int32_t label = 0; label < 8; ++label) {
    const LossSum sum = loss_of(even, {label}, 0.0f, 1.0f).sum;
    EXPECT_EQ(sum.top1, label == 0 ? 1 : 0);
    EXPECT_EQ(sum.top5, label < 5 ? 1 : 0);
  }
  const LossSum sum = loss_of({3, 2, 1, 0, -1, -2, 3, 2, 1, 0, -1, -2}, {4, 5}, 0.0f, 1.0f).sum;
  EXPECT_EQ(sum.top1, 0);
  EXPECT_EQ(sum.top5, 1);
}

// Otherwise a network that has lost its numbers would be right about every sample.
TEST(Loss, ranks_nothing_by_numbers_that_are_none) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinite = std::numeric_limits<float>::infinity();
  const LossSum sum =
      loss_of({nan, nan, nan, nan, 0, 0, 0, nan, 0, infinite, 0, 0}, {0, 1, 1, 1}, 0.0f, 1.0f).sum;
  EXPECT_EQ(sum.top1, 0);
  EXPECT_EQ(sum.top5, 0);
  EXPECT_FALSE(std::isfinite(sum.loss));
}

}  // namespace
}  // namespace tri::ops
