#include "ops/dropout/dropout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/philox.h"
#include "ops/dropout/dropout_kernel.h"
#include "ops/stochastic_depth/stochastic_depth.h"
#include "simd/target_fixture.h"

namespace tri::ops {
namespace {

const tensor::Shape kShape{9, 7, 37};

// The factors that a batch of `samples` is multiplied by.
std::vector<float> factors(const DropoutMask& mask, size_t samples, size_t threads, bool backward) {
  const RowTiles tiles(static_cast<int64_t>(samples), kShape);
  const std::vector<float> ones(samples * static_cast<size_t>(kShape.elements()), 1.0f);
  std::vector<float> out(ones.size()), scratch(threads * dropout_worker_bytes(tiles) / 4);
  const Stored stored{ones.data(), Format::kF32, kShape.c, kShape.c, kShape.pixels()};
  const Sink sink{out.data(), Format::kF32, kShape.c, kShape.c, kShape.pixels()};
  auto* memory = reinterpret_cast<std::byte*>(scratch.data());
  base::ThreadPool pool(threads);
  Source source;
  source.stored = stored;
  GradSource grad;
  grad.grad = stored;
  if (backward)
    dropout_backward(tiles, mask, grad, sink, memory, pool);
  else
    dropout_forward(tiles, mask, source, sink, memory, pool);
  return out;
}

TEST(Dropout, draws_the_same_mask_backward_and_on_any_number_of_threads) {
  const uint64_t samples[] = {3, 99, 3};
  const DropoutMask mask{7, samples, 5, 0.25f};
  const std::vector<float> first = factors(mask, 3, 1, false);
  for (const size_t threads : {1, 2, 3, 8}) {
    EXPECT_EQ(first, factors(mask, 3, threads, false));
    EXPECT_EQ(first, factors(mask, 3, threads, true));
  }
}

TEST(Dropout, belongs_to_the_sample_wherever_it_stands) {
  const uint64_t batch[] = {3, 99, 12}, alone[] = {99};
  const auto each = static_cast<std::ptrdiff_t>(kShape.elements());
  const std::vector<float> all = factors({7, batch, 5, 0.25f}, 3, 2, false);
  EXPECT_EQ(std::vector<float>(all.begin() + each, all.begin() + 2 * each),
            factors({7, alone, 5, 0.25f}, 1, 2, false));
  EXPECT_NE(all, factors({8, batch, 5, 0.25f}, 3, 2, false)) << "seed";
  EXPECT_NE(all, factors({7, batch, 6, 0.25f}, 3, 2, false)) << "layer";
}

TEST(Dropout, keeps_the_mean) {
  std::vector<uint64_t> samples(20);
  for (size_t i = 0; i < samples.size(); ++i) samples[i] = i;
  for (const float rate : {0.1f, 0.5f, 0.9f}) {
    const std::vector<float> all = factors({1, samples.data(), 0, rate}, samples.size(), 2, false);
    double kept = 0;
    for (const float f : all) {
      EXPECT_TRUE(f == 0.0f || f == 1.0f / (1.0f - rate));
      kept += f != 0.0f ? 1 : 0;
    }
    // Five deviations of a binomial share.
    const auto n = static_cast<double>(all.size());
    EXPECT_NEAR(kept / n, 1 - double{rate}, 5 * std::sqrt(double{rate} * (1 - double{rate}) / n));
  }
}

class DropoutKernel : public simd::TargetTest {};

// NaN as well: what is dropped is zero whatever it was, as a select and not as a product.
TEST_P(DropoutKernel, equals_the_scalar_rule_from_any_element_on) {
  const numeric::NoiseKey key{0x12345678, 0x9abcdef0};
  for (const float rate : {0.0f, 0.2f, 0.999f}) {
    for (const uint32_t first : {0u, 5u, 0xfffffff0u}) {  // past the last index it begins anew
      std::vector<float> values(77), expected(77);
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = i % 7 == 0 ? NAN : static_cast<float>(i) - 30;
        const uint32_t word = numeric::noise(key, first + static_cast<uint32_t>(i));
        const bool dropped = base::uniform_float(word) < rate;
        expected[i] = dropped ? 0.0f : values[i] * 1.5f;
      }
      drop({key, first, dropout_threshold(rate), 1.5f, values.data(),
            static_cast<int64_t>(values.size())});
      for (size_t i = 0; i < values.size(); ++i) {
        const bool same =
            values[i] == expected[i] || (std::isnan(values[i]) && std::isnan(expected[i]));
        ASSERT_TRUE(same) << i << ": " << values[i] << ", not " << expected[i];
      }
    }
  }
}

TRI_FOR_EACH_TARGET(DropoutKernel);

TEST(StochasticDepth, drops_whole_samples_by_their_identity) {
  std::vector<uint64_t> samples(4000);
  for (size_t i = 0; i < samples.size(); ++i) samples[i] = i * 3;
  const auto n = static_cast<int64_t>(samples.size());
  std::vector<float> all(samples.size());
  stochastic_depth_factors(7, 2, 0.2f, samples.data(), n, all.data());
  double dropped = 0;
  for (const float f : all) {
    EXPECT_TRUE(f == 0.0f || f == 1.0f / (1.0f - 0.2f));
    dropped += f == 0.0f ? 1 : 0;
  }
  EXPECT_NEAR(dropped / 4000, 0.2, 5 * std::sqrt(0.2 * 0.8 / 4000));
  float one = -1.0f;
  stochastic_depth_factors(7, 2, 0.2f, samples.data() + 1234, 1, &one);
  EXPECT_EQ(one, all[1234]);
  std::vector<float> other(samples.size());
  stochastic_depth_factors(7, 3, 0.2f, samples.data(), n, other.data());
  EXPECT_NE(all, other) << "layers draw apart";
}

}  // namespace
}  // namespace tri::ops
