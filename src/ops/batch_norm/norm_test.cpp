#include "ops/batch_norm/norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/philox.h"
#include "ops/channel_scale/channel_scale.h"
#include "simd/convert.h"
#include "simd/target_fixture.h"

namespace tri::ops {
namespace {

struct NormCase {
  int64_t samples, pixels, channels, ghost;
  double center, spread;
};

// One value per channel, channels that fill no vector, a smaller last ghost batch, several tiles,
// sums that are joined in several blocks, and a mean a thousand times the deviation, where E[x^2] -
// E[x]^2 would have no digit left.
const NormCase kNormCases[] = {
    {1, 1, 3, 0, 0, 1},      {4, 6, 7, 2, 0, 1},      {7, 5, 33, 3, 0.5, 2}, {3, 150, 20, 2, -1, 1},
    {6, 40, 130, 4, 0, 0.1}, {200, 1, 1000, 0, 0, 1}, {5, 64, 9, 0, 1000, 1}};

std::vector<float> draws(uint64_t seed, int64_t count, double center, double spread) {
  base::Stream stream(seed, base::Purpose::kInit);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values)
    v = static_cast<float>(center + spread * (2.0 * double{stream.uniform()} - 1.0));
  return values;
}

// One norm with all its memory, run as exec does.
class Trial {
 public:
  Trial(const NormCase& c, Format format = Format::kF32)
      : plan(c.samples, c.pixels, c.channels, c.ghost),
        shape(c),
        each(static_cast<size_t>(plan.ghosts * c.channels)),
        y(draws(1, c.samples * c.pixels * c.channels, c.center, c.spread)),
        gy(draws(2, c.samples * c.pixels * c.channels, 0, 1)),
        gamma(draws(3, c.channels, 1, 0.5)),
        beta(draws(4, c.channels, 0, 0.5)),
        running_mean(draws(5, c.channels, 0, 1)),
        running_variance(draws(6, c.channels, 1, 0.5)),
        depth(draws(7, c.samples, 1, 1)),
        statistics(4 * each),
        grads(3 * each + 2 * static_cast<size_t>(c.channels)),
        bytes(y.size() * numeric::storage_bytes(format)) {
    simd::encode(format, y.data(), bytes.data(), y.size());
    simd::decode(format, bytes.data(), y.data(), y.size());
    stored = {bytes.data(), format, c.channels, c.channels, c.pixels};
    grad.grad = {gy.data(), Format::kF32, c.channels, c.channels, c.pixels};
    grad.value.stored = stored;
    grad.value.norm = {batch().scale, batch().shift, c.channels, plan.ghost};
  }

  NormBatch batch() {
    float* s = statistics.data();
    return {s, s + each, s + 2 * each, s + 3 * each};
  }
  NormGrads norm_grads() {
    float* g = grads.data();
    return {g, g + each, g + 2 * each, g + 3 * each, g + 3 * each + shape.channels};
  }
  NormParams params() { return {gamma.data(), beta.data(), 1e-5f}; }

  void forward(base::ThreadPool& pool) {
    std::vector<float> scratch((plan.shared_bytes() + pool.threads() * plan.worker_bytes()) / 4);
    norm_forward(plan, stored, params(), batch(),
                 {running_mean.data(), running_variance.data(), 0.1f},
                 reinterpret_cast<std::byte*>(scratch.data()), pool);
  }
  void backward(base::ThreadPool& pool, bool rewrite) {
    std::vector<float> scratch((plan.shared_bytes() + pool.threads() * plan.worker_bytes()) / 4);
    norm_backward(plan, grad, batch(), params(), norm_grads(), rewrite,
                  reinterpret_cast<std::byte*>(scratch.data()), pool);
  }
  // The gradient of the stored tensor, after backward().
  std::vector<float> input_grad(bool rewritten) {
    GradSource source = grad;
    if (rewritten) {
      source.value.activation = Activation::kNone;
      source.value.sample_factor = nullptr;
    }
    source.a = norm_grads().a;
    source.b = norm_grads().b;
    source.c = norm_grads().c;
    source.mean = batch().mean;
    std::vector<float> dx(y.size());
    for (int64_t n = 0; n < shape.samples; ++n)
      load_grad_rows(source, {n, 0, shape.pixels, 0, shape.channels},
                     dx.data() + n * shape.pixels * shape.channels, shape.channels);
    return dx;
  }
  // Indices of channel c in ghost batch k.
  std::vector<size_t> column(int64_t k, int64_t c) const {
    std::vector<size_t> all;
    const int64_t first = k * plan.ghost * shape.pixels;
    for (int64_t row = first; row < first + plan.ghost_rows(k); ++row)
      all.push_back(static_cast<size_t>(row * shape.channels + c));
    return all;
  }

  NormPlan plan;
  NormCase shape;
  size_t each;
  std::vector<float> y, gy, gamma, beta, running_mean, running_variance, depth, statistics, grads;
  std::vector<std::byte> bytes;
  Stored stored;
  GradSource grad;
};

class Norm : public simd::TargetTest {};

// Tells of a tensor in odd pieces of rows and channels, from all threads. Pieces run from one
// sample and one ghost batch into the next.
void tell_in_pieces(const NormPlan& plan, NormSums& sums, base::ThreadPool& pool) {
  constexpr int64_t kRows = 5, kChannels = 7;
  const int64_t rows = plan.samples * plan.pixels;
  const int64_t strips = (rows + kRows - 1) / kRows;
  const int64_t blocks = (plan.channels + kChannels - 1) / kChannels;
  pool.run(static_cast<size_t>(strips * blocks), [&](size_t i, size_t worker) {
    const auto piece = static_cast<int64_t>(i);
    const int64_t row = piece / blocks * kRows, channel = piece % blocks * kChannels;
    sums.finished({row / plan.pixels, row % plan.pixels, std::min(kRows, rows - row), channel,
                   std::min(kChannels, plan.channels - channel)},
                  worker);
  });
}

TEST_P(Norm, watched_rows_give_the_same_bits) {
  base::ThreadPool pool(3);
  for (const NormCase& c : kNormCases)
    for (const Rewrite rewrite : {Rewrite::kNever, Rewrite::kWhenSummed}) {
      Trial whole(c, Format::kBf16), watched(c, Format::kBf16);
      whole.grad.value.activation = watched.grad.value.activation = Activation::kSilu;
      whole.forward(pool);
      whole.backward(pool, rewrite == Rewrite::kWhenSummed);
      std::vector<float> memory(watched.plan.scratch_bytes(pool.threads()) / sizeof(float));
      auto* scratch = reinterpret_cast<std::byte*>(memory.data());
      NormMoments moments(watched.plan, watched.stored, scratch);
      tell_in_pieces(watched.plan, moments, pool);
      norm_join(watched.plan, watched.params(), watched.batch(),
                {watched.running_mean.data(), watched.running_variance.data(), 0.1f}, scratch,
                pool);
      NormGradSums sums(watched.plan, watched.grad, watched.batch().mean, rewrite, scratch);
      tell_in_pieces(watched.plan, sums, pool);
      norm_join_grads(watched.plan, watched.batch(), watched.params(), watched.norm_grads(),
                      scratch, pool);
      EXPECT_EQ(whole.statistics, watched.statistics);
      EXPECT_EQ(whole.running_variance, watched.running_variance);
      EXPECT_EQ(whole.grads, watched.grads);
      EXPECT_EQ(whole.gy, watched.gy);
    }
}

// Writes the gradient a few rows of one sample at a time, as an operation that passes them does.
void write_in_pieces(const Trial& t, const std::vector<float>& gy, const Sink& sink,
                     base::ThreadPool& pool) {
  constexpr int64_t kRows = 5, kChannels = 7;
  const int64_t strips = (t.plan.pixels + kRows - 1) / kRows;
  const int64_t blocks = (t.plan.channels + kChannels - 1) / kChannels;
  pool.run(static_cast<size_t>(t.plan.samples * strips * blocks), [&](size_t i, size_t worker) {
    const auto piece = static_cast<int64_t>(i);
    const int64_t sample = piece / blocks / strips, pixel = piece / blocks % strips * kRows;
    const int64_t channel = piece % blocks * kChannels;
    const RowRange range{sample, pixel, std::min(kRows, t.plan.pixels - pixel), channel,
                         std::min(kChannels, t.plan.channels - channel)};
    float rows[kRows * kChannels];
    for (int64_t r = 0; r < range.count; ++r)
      std::copy_n(gy.data() + ((sample * t.plan.pixels + pixel + r) * t.plan.channels + channel),
                  range.channels, rows + r * kChannels);
    sink.pass(range, rows, kChannels);
    store_rows(sink, range, rows, kChannels);
    sink.tell(range, worker);
  });
}

TEST_P(Norm, rows_that_are_passed_give_the_bits_of_rewritten_ones) {
  base::ThreadPool pool(3);
  for (const NormCase& c : kNormCases)
    for (const Format format : {Format::kF32, Format::kBf16, Format::kF16, Format::kF8e5}) {
      Trial rewritten(c, format), passed(c, format);
      for (Trial* t : {&rewritten, &passed}) {
        t->grad.value.activation = Activation::kSilu;
        t->grad.value.sample_factor = t->depth.data();
        t->forward(pool);
      }
      rewritten.backward(pool, true);
      const std::vector<float> gy = passed.gy;
      std::fill(passed.gy.begin(), passed.gy.end(), NAN);
      std::vector<float> memory(passed.plan.scratch_bytes(pool.threads()) / sizeof(float));
      auto* scratch = reinterpret_cast<std::byte*>(memory.data());
      NormGradSums sums(passed.plan, passed.grad, passed.batch().mean, Rewrite::kWhenPassed,
                        scratch);
      Sink sink{passed.gy.data(), Format::kF32, c.channels, c.channels, c.pixels};
      sink.watcher = &sums;
      write_in_pieces(passed, gy, sink, pool);
      norm_join_grads(passed.plan, passed.batch(), passed.params(), passed.norm_grads(), scratch,
                      pool);
      EXPECT_EQ(rewritten.gy, passed.gy);
      EXPECT_EQ(rewritten.grads, passed.grads);
    }
}

// Where the gradient is stored in fewer bits, the sums are those of what is stored.
TEST_P(Norm, rows_that_are_passed_are_summed_as_they_are_stored) {
  base::ThreadPool pool(3);
  for (const NormCase& c : kNormCases)
    for (const Format format : {Format::kBf16, Format::kF16, Format::kF8e5}) {
      Trial t(c, Format::kBf16), as_stored(c, Format::kBf16);
      t.grad.value.activation = Activation::kSilu;
      t.forward(pool);
      as_stored.forward(pool);
      std::vector<std::byte> codes(t.gy.size() * numeric::storage_bytes(format));
      t.grad.grad = {codes.data(), format, c.channels, c.channels, c.pixels};
      std::vector<float> memory(t.plan.scratch_bytes(pool.threads()) / sizeof(float));
      auto* scratch = reinterpret_cast<std::byte*>(memory.data());
      NormGradSums sums(t.plan, t.grad, t.batch().mean, Rewrite::kWhenPassed, scratch);
      Sink sink{codes.data(), format, c.channels, c.channels, c.pixels};
      sink.watcher = &sums;
      write_in_pieces(t, t.gy, sink, pool);
      norm_join_grads(t.plan, t.batch(), t.params(), t.norm_grads(), scratch, pool);
      // A norm without activation, whose GY is what was stored.
      simd::decode(format, codes.data(), as_stored.gy.data(), as_stored.gy.size());
      as_stored.backward(pool, false);
      EXPECT_EQ(as_stored.grads, t.grads);
    }
}

TEST_P(Norm, statistics_are_those_of_each_ghost_batch) {
  base::ThreadPool pool(2);
  for (const NormCase& c : kNormCases)
    for (const Format format : {Format::kF32, Format::kBf16, Format::kF8e5}) {
      Trial t(c, format);
      const std::vector<float> mean_before = t.running_mean, variance_before = t.running_variance;
      t.forward(pool);
      for (int64_t ch = 0; ch < c.channels; ++ch) {
        const auto at_channel = static_cast<size_t>(ch);
        double running_mean = double{mean_before[at_channel]};
        double running_variance = double{variance_before[at_channel]};
        for (int64_t k = 0; k < t.plan.ghosts; ++k) {
          const std::vector<size_t> all = t.column(k, ch);
          const auto rows = static_cast<double>(all.size());
          double mean = 0, m2 = 0, most = 0;
          for (const size_t i : all) mean += double{t.y[i]} / rows;
          for (const size_t i : all) {
            m2 += (double{t.y[i]} - mean) * (double{t.y[i]} - mean);
            most = std::max(most, std::abs(double{t.y[i]}));
          }
          // fp32 sums of one tile (at most 128 rows), joined in double precision.
          const double eps = 128 * 0x1p-24;
          const double inverse = 1 / std::sqrt(m2 / rows + 1e-5);
          const auto at = static_cast<size_t>(k * c.channels + ch);
          EXPECT_NEAR(double{t.batch().mean[at]}, mean, eps * most);
          // Distances are those from a mean that may be off by eps * most.
          const double variance_off = 2 * eps * m2 / rows + eps * most * eps * most;
          const double inverse_off = inverse * inverse * inverse * variance_off + eps * inverse;
          EXPECT_NEAR(double{t.batch().inverse[at]}, inverse, inverse_off);
          // What a reader makes of a value: no worse than its own rounding allows.
          for (const size_t i : {all.front(), all.back()}) {
            const double z =
                double{t.y[i]} * double{t.batch().scale[at]} + double{t.batch().shift[at]};
            const double g = double{t.gamma[at_channel]};
            EXPECT_NEAR(z, g * (double{t.y[i]} - mean) * inverse + double{t.beta[at_channel]},
                        2 * eps * g * most * inverse + 2 * most * g * inverse_off + eps);
          }
          running_mean += double{0.1f} * (mean - running_mean);
          running_variance +=
              double{0.1f} * (m2 / std::max(1.0, rows - 1) * (rows > 1 ? 1 : 0) - running_variance);
          EXPECT_TRUE(std::isfinite(t.batch().shift[at]));
          if (k + 1 < t.plan.ghosts) continue;
          EXPECT_NEAR(double{t.running_mean[at_channel]}, running_mean, 2 * eps * (most + 1));
          EXPECT_NEAR(double{t.running_variance[at_channel]}, running_variance,
                      2 * eps * running_variance + variance_off * 2);
        }
      }
    }
}

// Moments are taken around the mean of the first eight rows of a tile, of which one stands out
// here: what is subtracted from the sum of squares is a 64th as many times the result as a tile has
// rows. Around that row alone it would be 64 times as much, around zero no digit would be left.
TEST_P(Norm, a_first_row_that_stands_out_costs_few_digits) {
  base::ThreadPool pool(1);
  Trial t({4, 64, 64, 0, 10000, 1});
  for (int64_t row = 0; row < t.shape.samples * t.shape.pixels; row += t.plan.tile_rows)
    std::fill_n(t.y.begin() + row * t.shape.channels, t.shape.channels, 10030.0f);
  simd::encode(Format::kF32, t.y.data(), t.bytes.data(), t.y.size());
  t.forward(pool);
  for (int64_t ch = 0; ch < t.shape.channels; ++ch) {
    const std::vector<size_t> all = t.column(0, ch);
    const auto rows = static_cast<double>(all.size()), tile = static_cast<double>(t.plan.tile_rows);
    double mean = 0, m2 = 0;
    for (const size_t i : all) mean += double{t.y[i]} / rows;
    for (const size_t i : all) m2 += (double{t.y[i]} - mean) * (double{t.y[i]} - mean);
    const double inverse = 1 / std::sqrt(m2 / rows + 1e-5), eps = tile * 0x1p-24;
    EXPECT_NEAR(double{t.batch().mean[ch]}, mean, eps * 10030);
    // The sum of squares has one relative eps, the square of the sum two; the root halves them.
    EXPECT_NEAR(double{t.batch().inverse[ch]}, inverse, (1 + 3 * tile / 64) / 2 * eps * inverse);
  }
}

// The difference of two sums that are equal but for their roundings is not below zero, where its
// root would be no number.
TEST_P(Norm, channels_that_do_not_vary_have_a_deviation) {
  base::ThreadPool pool(1);
  Trial t({5, 23, 64, 0, 0, 1});
  const std::vector<float> constants = draws(8, t.shape.channels, 0, 1e12);
  for (size_t i = 0; i < t.y.size(); ++i) t.y[i] = constants[i % constants.size()];
  simd::encode(Format::kF32, t.y.data(), t.bytes.data(), t.y.size());
  t.forward(pool);
  for (size_t ch = 0; ch < constants.size(); ++ch) {
    EXPECT_NEAR(t.batch().mean[ch], constants[ch], 0x1p-22f * std::abs(constants[ch]));
    EXPECT_TRUE(std::isfinite(t.batch().inverse[ch])) << constants[ch];
    EXPECT_GT(t.batch().inverse[ch], 0.0f);
  }
}

TEST_P(Norm, backward_is_the_derivative) {
  base::ThreadPool pool(2);
  for (const NormCase& c : kNormCases) {
    if (c.center > 100) continue;  // the derivative there is as badly conditioned as the mean
    for (const Activation activation : {Activation::kNone, Activation::kSilu})
      for (const bool drops : {false, true}) {
        Trial t(c);
        t.grad.value.activation = activation;
        if (drops) t.grad.value.sample_factor = t.depth.data();
        t.forward(pool);
        t.backward(pool, false);
        const std::vector<float> dx = t.input_grad(false);
        for (int64_t ch = 0; ch < c.channels; ++ch) {
          const auto at_channel = static_cast<size_t>(ch);
          const double gamma = double{t.gamma[at_channel]}, beta = double{t.beta[at_channel]};
          double gamma_grad = 0, beta_grad = 0, total = 0;
          for (int64_t k = 0; k < t.plan.ghosts; ++k) {
            const std::vector<size_t> all = t.column(k, ch);
            const auto rows = static_cast<double>(all.size());
            double mean = 0, m2 = 0, plain = 0, centred = 0;
            for (const size_t i : all) mean += double{t.y[i]} / rows;
            for (const size_t i : all) m2 += (double{t.y[i]} - mean) * (double{t.y[i]} - mean);
            const double inverse = 1 / std::sqrt(m2 / rows + 1e-5);
            std::vector<double> dz, normalised;
            double most = 0;
            for (const size_t i : all) {
              normalised.push_back((double{t.y[i]} - mean) * inverse);
              const double z = gamma * normalised.back() + beta;
              const double s = 1 / (1 + std::exp(-z));
              const auto sample = i / static_cast<size_t>(c.pixels * c.channels);
              dz.push_back(double{t.gy[i]} * (drops ? double{t.depth[sample]} : 1.0) *
                           (activation == Activation::kSilu ? s * (1 + z * (1 - s)) : 1.0));
              plain += dz.back();
              centred += dz.back() * normalised.back();
              most = std::max(most, std::abs(dz.back()) * (1 + std::abs(normalised.back())));
            }
            gamma_grad += centred;
            beta_grad += plain;
            total += most * rows;
            // Sums of tiles of 128 rows; the load's own dozen roundings; 1 / deviation scales all.
            const double off =
                (128 + 16) * 0x1p-24 * 4 * most * gamma * inverse * (1 + std::abs(mean) * inverse);
            for (size_t j = 0; j < all.size(); ++j)
              ASSERT_NEAR(double{dx[all[j]]},
                          gamma * inverse * (dz[j] - plain / rows - normalised[j] * centred / rows),
                          off)
                  << "channel " << ch << " of " << c.channels;
          }
          EXPECT_NEAR(double{t.norm_grads().gamma[at_channel]}, gamma_grad,
                      128 * 0x1p-24 * 4 * total);
          EXPECT_NEAR(double{t.norm_grads().beta[at_channel]}, beta_grad,
                      128 * 0x1p-24 * 4 * total);
        }
      }
  }
}

TEST_P(Norm, rewritten_gradients_give_the_same_bits) {
  base::ThreadPool pool(2);
  for (const NormCase& c : kNormCases) {
    Trial plain(c), rewritten(c);
    for (Trial* t : {&plain, &rewritten}) {
      t->grad.value.activation = Activation::kSilu;
      t->grad.value.sample_factor = t->depth.data();
      t->forward(pool);
      t->backward(pool, t == &rewritten);
    }
    EXPECT_NE(plain.gy, rewritten.gy);
    EXPECT_EQ(plain.grads, rewritten.grads);
    EXPECT_EQ(plain.input_grad(false), rewritten.input_grad(true));
  }
}

// Squeeze-excite: applied on load, or to the gradient beforehand.
TEST_P(Norm, gradients_under_a_factor_with_an_addend_give_the_same_bits) {
  base::ThreadPool pool(2);
  for (const NormCase& c : kNormCases) {
    const std::vector<float> factor = draws(8, c.samples * c.channels, 1, 1),
                             addend = draws(9, c.samples * c.channels, 0, 1);
    Trial before(c), on_load(c);
    for (size_t i = 0; i < before.gy.size(); ++i) {
      const auto row = static_cast<int64_t>(i) / c.channels,
                 channel = static_cast<int64_t>(i) % c.channels;
      const auto at = static_cast<size_t>(row / c.pixels * c.channels + channel);
      before.gy[i] = before.gy[i] * factor[at] + addend[at];
    }
    on_load.grad.value.channel_factor = factor.data();
    on_load.grad.channel_addend = addend.data();
    for (Trial* t : {&before, &on_load}) {
      t->grad.value.activation = Activation::kSilu;
      t->forward(pool);
      t->backward(pool, true);
    }
    EXPECT_EQ(before.gy, on_load.gy);
    EXPECT_EQ(before.grads, on_load.grads);
  }
}

// The same sums, of which the factor and the addend come last.
TEST_P(Norm, sums_made_before_the_factor_is_known_give_the_same_gradients) {
  base::ThreadPool pool(2);
  for (const NormCase& c : kNormCases) {
    const std::vector<float> factor = draws(8, c.samples * c.channels, 1, 1),
                             addend = draws(9, c.samples * c.channels, 0, 1);
    Trial at_once(c), factored(c);
    for (Trial* t : {&at_once, &factored}) {
      t->grad.value.activation = Activation::kSilu;
      t->forward(pool);
    }
    std::vector<float> sums(static_cast<size_t>(c.samples * kFactoredSums * c.channels)),
        of_factor(factor.size());
    std::vector<float> scratch(
        pool.threads() * channel_scale_sums_worker_bytes(c.channels, Format::kF32, Format::kF32) /
        4);
    channel_scale_sums(c.samples, factored.grad.grad, factored.grad.value, factored.batch().mean,
                       {of_factor.data(), Format::kF32, c.channels, c.channels, 1}, sums.data(),
                       reinterpret_cast<std::byte*>(scratch.data()), pool);
    norm_join_grads(factored.plan, factored.batch(), factored.params(), factored.norm_grads(),
                    FactoredSums{sums.data(), factor.data(), addend.data()}, pool);
    at_once.grad.value.channel_factor = factor.data();
    at_once.grad.channel_addend = addend.data();
    at_once.backward(pool, false);
    // GY, the factor and the addend are at most 1, 2 and 1, the derivative 1.1 and off by 2^-21;
    // chains of 128 roundings, then of as many as there are chains.
    const double error = 3 * 1.1 * (128 + static_cast<double>(c.pixels) / 32 + 8) * 0x1p-24;
    std::vector<double> of_gamma(factored.gamma.size()), of_beta(factored.beta.size());
    for (int64_t k = 0; k < factored.plan.ghosts; ++k)
      for (int64_t ch = 0; ch < c.channels; ++ch) {
        const auto at = static_cast<size_t>(k * c.channels + ch);
        const auto rows = static_cast<double>(factored.plan.ghost_rows(k));
        double off = 0;
        for (const size_t i : factored.column(k, ch))
          off += std::abs(double{factored.y[i]} - double{factored.batch().mean[at]});
        const double a = std::abs(double{factored.norm_grads().a[at]});
        const double inverse = double{factored.batch().inverse[at]};
        EXPECT_EQ(at_once.norm_grads().a[at], factored.norm_grads().a[at]);
        EXPECT_NEAR(at_once.norm_grads().b[at], factored.norm_grads().b[at],
                    2 * error * a * inverse * inverse * off / rows + 1e-30);
        EXPECT_NEAR(at_once.norm_grads().c[at], factored.norm_grads().c[at], 2 * error * a);
        of_gamma[static_cast<size_t>(ch)] += 2 * error * off * inverse;
        of_beta[static_cast<size_t>(ch)] += 2 * error * rows;
      }
    for (size_t ch = 0; ch < of_gamma.size(); ++ch) {
      EXPECT_NEAR(at_once.norm_grads().gamma[ch], factored.norm_grads().gamma[ch], of_gamma[ch]);
      EXPECT_NEAR(at_once.norm_grads().beta[ch], factored.norm_grads().beta[ch], of_beta[ch]);
    }
  }
}

TEST_P(Norm, same_bits_for_any_number_of_threads) {
  for (const NormCase& c : kNormCases) {
    std::vector<std::vector<float>> first;
    for (const size_t threads : {1, 2, 3, 8}) {
      base::ThreadPool pool(threads);
      Trial t(c);
      t.grad.value.activation = Activation::kRelu;
      t.forward(pool);
      t.backward(pool, false);
      const std::vector<std::vector<float>> all = {t.statistics, t.grads, t.running_mean,
                                                   t.running_variance, t.input_grad(false)};
      if (first.empty()) first = all;
      EXPECT_EQ(first, all);
    }
  }
}

TEST(FrozenNorm, takes_the_running_statistics) {
  const std::vector<float> gamma = {1.0f, 2.0f}, beta = {0.0f, -1.0f}, mean = {3.0f, 0.5f},
                           variance = {4.0f, 0.25f};
  std::vector<float> scale(2), shift(2);
  norm_frozen(2, {gamma.data(), beta.data(), 1e-5f}, mean.data(), variance.data(), scale.data(),
              shift.data());
  for (size_t c = 0; c < 2; ++c) {
    const double want = double{gamma[c]} / std::sqrt(double{variance[c]} + double{1e-5f});
    EXPECT_FLOAT_EQ(scale[c], static_cast<float>(want));
    EXPECT_FLOAT_EQ(shift[c], static_cast<float>(double{beta[c]} - double{mean[c]} * want));
  }
}

// A channel of one number has no spread: nothing is divided by zero, and nothing flows back.
TEST(SmallNorm, of_one_value_is_finite) {
  base::ThreadPool pool(1);
  Trial t({1, 1, 3, 0, 0, 1});
  const std::vector<float> before = t.running_variance;
  t.forward(pool);
  t.backward(pool, false);
  // Two products that cancel, each rounded once; 1 / sqrt(eps) scales both.
  for (const float v : t.input_grad(false)) EXPECT_NEAR(v, 0.0f, 4 * 0x1p-24 / std::sqrt(1e-5));
  for (size_t c = 0; c < 3; ++c) EXPECT_FLOAT_EQ(t.running_variance[c], 0.9f * before[c]);
}

TRI_FOR_EACH_TARGET(Norm);

}  // namespace
}  // namespace tri::ops
