#include "ops/conv2d/depthwise.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <string>
#include <vector>

#include "base/philox.h"
#include "ops/conv2d/conv_checks.h"
#include "ops/conv2d/conv_ref.h"
#include "ops/conv2d/depthwise_grad.h"
#include "ops/drawn_floats.h"
#include "simd/convert.h"
#include "simd/target.h"

namespace tri::ops {
namespace {

struct DepthwiseCase {
  std::string name;
  Shape in;
  int64_t kernel_h, kernel_w, stride, padding, samples;
};

ConvGeometry geometry_of(const DepthwiseCase& c) {
  const auto extent = [&](int64_t in, int64_t k) {
    return (in + 2 * c.padding - k) / c.stride + 1;
  };
  return {c.in,       {extent(c.in.h, c.kernel_h), extent(c.in.w, c.kernel_w), c.in.c},
          c.kernel_h, c.kernel_w,
          c.stride,   c.stride,
          c.padding,  c.padding,
          c.in.c};
}

// Odd sizes on purpose: channels that fill no vector, maps smaller than the kernel, one sample,
// maps too large for one strip or one channel tile, strides that jump over pixels.
const std::vector<DepthwiseCase> kDepthwiseCases = {
    {"tiny_map", {1, 1, 33}, 3, 3, 1, 1, 13},   {"two", {2, 2, 19}, 5, 5, 1, 2, 7},
    {"k3s1", {9, 11, 21}, 3, 3, 1, 1, 4},       {"k3s2", {11, 12, 40}, 3, 3, 2, 1, 5},
    {"k5s1", {7, 13, 17}, 5, 5, 1, 2, 3},       {"k5s2", {14, 15, 16}, 5, 5, 2, 2, 4},
    {"k7s3", {16, 17, 5}, 7, 7, 3, 3, 3},       {"odd_kernel", {8, 9, 6}, 2, 4, 1, 1, 2},
    {"skips", {10, 10, 9}, 2, 1, 3, 0, 3},      {"wide_pad", {3, 4, 2}, 3, 3, 1, 3, 2},
    {"no_pad", {6, 7, 24}, 3, 3, 2, 0, 1},      {"strips", {70, 9, 8}, 3, 3, 1, 1, 2},
    {"blocks", {5, 67, 200}, 3, 3, 1, 1, 1},    {"large_map", {40, 61, 72}, 5, 5, 2, 2, 1},
    {"few_channels", {6, 6, 3}, 3, 3, 1, 1, 3}, {"three", {3, 3, 20}, 5, 5, 1, 2, 4},
    {"four", {4, 4, 20}, 5, 5, 1, 2, 3},
};

class DepthwiseTest : public testing::TestWithParam<DepthwiseCase> {
 protected:
  DepthwiseTest() : g(geometry_of(GetParam())), n(GetParam().samples) {
    x = drawn_floats(1, n * g.in.elements());
    dy = drawn_floats(2, n * g.out.elements());
    oihw = drawn_floats(3, g.out.c * g.taps());
    bias = drawn_floats(4, g.out.c);
    packed.resize(static_cast<size_t>(g.weight_count()));
    pack_weights(g, oihw.data(), packed.data());
    x_source.stored = whole_tensor(x.data(), Format::kF32, g.in);
    dy_source.grad = whole_tensor(dy.data(), Format::kF32, g.out);
  }
  std::vector<float> forward(base::ThreadPool& pool, const Source& src) {
    return forward(pool, src, {packed.data()});
  }
  std::vector<float> forward(base::ThreadPool& pool, const Source& src, const Weights& weights) {
    const DepthwisePlan plan(g, Direction::kForward, n);
    std::vector<std::byte> scratch(plan.shared_bytes() + plan.worker_bytes() * pool.threads());
    std::vector<float> y(static_cast<size_t>(n * g.out.elements()), NAN);
    const Sink sink{y.data(), Format::kF32, g.out.c, g.out.c, g.out.pixels()};
    depthwise_forward(plan, src, weights, bias.data(), sink, scratch.data(), pool);
    return y;
  }
  // Into `dx`, which is overwritten unless it is to be added to.
  void backward_data(base::ThreadPool& pool, std::vector<float>& dx, bool accumulate) {
    const DepthwisePlan plan(g, Direction::kBackwardData, n);
    std::vector<std::byte> scratch(plan.shared_bytes() + plan.worker_bytes() * pool.threads());
    const Sink sink{dx.data(), Format::kF32, g.in.c, g.in.c, g.in.pixels(), accumulate};
    depthwise_backward_data(plan, dy_source, {packed.data()}, sink, scratch.data(), pool);
  }
  std::vector<float> backward_data(base::ThreadPool& pool) {
    std::vector<float> dx(x.size(), NAN);
    backward_data(pool, dx, false);
    return dx;
  }
  std::vector<float> backward_weights(base::ThreadPool& pool, int64_t ghost, int64_t first,
                                      int64_t count, const float* initial,
                                      const DepthwiseData* data = nullptr) {
    const DepthwiseGradPlan plan(g, count, ghost);
    std::vector<std::byte> scratch(plan.shared_bytes() + plan.worker_bytes() * pool.threads());
    Keep keep(g.weight_count());
    Source src = x_source;
    src.stored.data = x.data() + first * g.in.elements();
    src.activation = Activation::kRelu;
    GradSource grad = dy_source;
    grad.grad.data = dy.data() + first * g.out.elements();
    depthwise_backward_weights(plan, src, grad, initial, keep, data, scratch.data(), pool);
    for (size_t i = 0; i < keep.taken.size(); ++i)
      EXPECT_EQ(keep.taken[i], 1) << "how often element " << i << " was handed over";
    for (int64_t i = 0; i < g.weight_count(); ++i)
      EXPECT_TRUE(i % g.padded_channels() < g.in.c || keep.grad[static_cast<size_t>(i)] == 0.0f);
    return keep.grad;
  }
  ConvGeometry g;
  int64_t n;
  std::vector<float> x, dy, oihw, bias, packed;
  Source x_source;
  GradSource dy_source;
};

TEST_P(DepthwiseTest, agrees_with_the_definition_on_every_target) {
  std::vector<double> y(dy.size()), dx(x.size()), dw(oihw.size());
  std::vector<float> rectified(x);
  for (float& v : rectified) v = std::max(v, 0.0f);
  reference::conv_forward(g, n, x.data(), oihw.data(), bias.data(), y.data());
  reference::conv_backward_data(g, n, dy.data(), oihw.data(), dx.data());
  reference::conv_backward_weights(g, n, rectified.data(), dy.data(), dw.data());
  base::ThreadPool pool(2);
  for (const std::string_view target : simd::runnable_targets()) {
    ASSERT_TRUE(simd::force_target(target));
    expect_near(y, forward(pool, x_source), conv_tolerance(g.taps() + 1), "forward");
    expect_near(dx, backward_data(pool), conv_tolerance(g.taps()), "backward data");
    std::vector<float> grad(oihw.size());
    unpack_weights(g, backward_weights(pool, 0, 0, n, nullptr).data(), grad.data());
    expect_near(dw, grad, conv_tolerance(n * g.out.pixels()), "backward weights");
  }
  ASSERT_TRUE(simd::force_target("auto"));
}

TEST_P(DepthwiseTest, same_bits_for_any_number_of_threads) {
  base::ThreadPool one(1);
  const auto y = forward(one, x_source), dx = backward_data(one);
  const auto dw = backward_weights(one, 2, 0, n, nullptr);
  for (const size_t threads : {2, 3, 8}) {
    base::ThreadPool pool(threads);
    EXPECT_EQ(y, forward(pool, x_source));
    EXPECT_EQ(dx, backward_data(pool));
    EXPECT_EQ(dw, backward_weights(pool, 2, 0, n, nullptr));
  }
}

class DepthwiseJointTest : public DepthwiseTest {};

TEST_P(DepthwiseJointTest, a_joint_pass_has_the_bits_of_two) {
  base::ThreadPool pool(2);
  for (const bool accumulate : {false, true}) {
    std::vector<float> alone(x.size(), 0.25f), joined = alone;
    backward_data(pool, alone, accumulate);
    const DepthwiseData data{
        packed.data(), {joined.data(), Format::kF32, g.in.c, g.in.c, g.in.pixels(), accumulate}};
    EXPECT_EQ(backward_weights(pool, 0, 0, n, nullptr),
              backward_weights(pool, 0, 0, n, nullptr, &data));
    EXPECT_EQ(alone, joined);
  }
}

// Differentiates rows through silu; whoever has the slopes may do it if the watcher says so.
class Differentiates final : public RowWatcher {
 public:
  Differentiates(const Source& x, bool by_slope) : by_slope_(by_slope) { grad_.value = x; }
  void pass(const RowRange& range, float* rows, int64_t stride) const noexcept override {
    ++passed;
    differentiate_rows(grad_, range, rows, stride);
  }
  bool passes_by_slope() const noexcept override { return by_slope_; }
  void finished(const RowRange& range, size_t) noexcept override {
    told += range.count * range.channels;
  }
  mutable std::atomic<int64_t> passed = 0;
  std::atomic<int64_t> told = 0;

 private:
  GradSource grad_;
  bool by_slope_;
};

TEST_P(DepthwiseJointTest, gives_its_rows_the_slopes_that_a_watcher_would) {
  base::ThreadPool pool(2);
  std::vector<uint16_t> narrow(x.size());
  simd::encode(Format::kBf16, x.data(), narrow.data(), x.size());
  const DepthwiseGradPlan plan(g, n, 0, true);
  std::vector<std::byte> scratch(plan.shared_bytes() + plan.worker_bytes() * pool.threads());
  for (const bool wide : {true, false}) {
    Source src;
    src.stored = wide ? whole_tensor(x.data(), Format::kF32, g.in)
                      : whole_tensor(narrow.data(), Format::kBf16, g.in);
    src.activation = Activation::kSilu;
    src.of_half = !wide;
    const auto run = [&](Differentiates& watcher, std::vector<float>& dx) {
      Keep keep(g.weight_count());
      DepthwiseData data{packed.data(),
                         {dx.data(), Format::kF32, g.in.c, g.in.c, g.in.pixels(), false}};
      data.dst.watcher = &watcher;
      depthwise_backward_weights(plan, src, dy_source, nullptr, keep, &data, scratch.data(), pool);
      EXPECT_EQ(watcher.told, std::ssize(x));
      return keep.grad;
    };
    Differentiates passed(src, false), by_slope(src, true);
    std::vector<float> want(x.size(), NAN), got(x.size(), NAN);
    EXPECT_EQ(run(passed, want), run(by_slope, got));
    EXPECT_EQ(want, got);
    EXPECT_GT(passed.passed, 0);
    EXPECT_EQ(by_slope.passed, 0);
  }
}

class DepthwiseGhostTest : public DepthwiseTest {};

TEST_P(DepthwiseGhostTest, micro_batches_cut_at_ghosts_give_the_bits_of_the_whole_batch) {
  base::ThreadPool pool(2);
  const int64_t ghost = (n + 2) / 3, first = ghost;
  const auto whole = backward_weights(pool, ghost, 0, n, nullptr);
  const auto part = backward_weights(pool, ghost, 0, first, nullptr);
  EXPECT_EQ(whole, backward_weights(pool, ghost, first, n - first, part.data()));
}

// Also rows that are loaded against rows read in place.
TEST_P(DepthwiseTest, reads_any_format_as_if_it_had_been_rounded_before) {
  base::ThreadPool pool(2);
  for (const Format format :
       {Format::kBf16, Format::kF16, Format::kF16e6, Format::kF8e4b4, Format::kF8e5}) {
    const auto round = [&](const std::vector<float>& from, std::vector<std::byte>& narrow) {
      std::vector<float> rounded(from.size());
      narrow.resize(from.size() * numeric::storage_bytes(format));
      simd::encode(format, from.data(), narrow.data(), from.size());
      simd::decode(format, narrow.data(), rounded.data(), from.size());
      return rounded;
    };
    std::vector<std::byte> narrow_x, narrow_w;
    const auto rounded_x = round(x, narrow_x), rounded_w = round(packed, narrow_w);
    Source src, same;
    src.stored = whole_tensor(narrow_x.data(), format, g.in);
    same.stored = whole_tensor(rounded_x.data(), Format::kF32, g.in);
    const Weights weights{narrow_w.data(), format, nullptr, Weights::Remainder::kNone, format};
    EXPECT_EQ(forward(pool, src, weights), forward(pool, same, {rounded_w.data()}))
        << numeric::spec(format).name;
  }
}

TEST_P(DepthwiseTest, stores_narrow_results_rounded_once) {
  base::ThreadPool pool(3);
  const DepthwisePlan plan(g, Direction::kForward, n);
  std::vector<std::byte> scratch(plan.shared_bytes() + plan.worker_bytes() * pool.threads());
  const auto y = forward(pool, x_source);
  std::vector<uint16_t> want(y.size()), got(y.size());
  const auto lost = simd::encode(Format::kF16, y.data(), want.data(), y.size());
  const Sink sink{got.data(), Format::kF16, g.out.c, g.out.c, g.out.pixels()};
  const StoreCounts counts =
      depthwise_forward(plan, x_source, {packed.data()}, bias.data(), sink, scratch.data(), pool);
  EXPECT_EQ(want, got);
  EXPECT_EQ(counts.underflow, lost.underflow);
}

TEST_P(DepthwiseTest, reads_and_writes_views_of_wider_tensors) {
  base::ThreadPool pool(2);
  const int64_t wide = g.in.c + 5, skip = 3;  // as a split or a concatenation leaves them
  std::vector<float> wide_x(static_cast<size_t>(n * g.in.pixels() * wide), NAN);
  for (size_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    wide_x[static_cast<size_t>(at / g.in.c * wide + skip + at % g.in.c)] = x[i];
  }
  std::vector<float> wide_y(static_cast<size_t>(n * g.out.pixels() * wide), 7.0f);
  Source src;
  src.stored = {wide_x.data() + skip, Format::kF32, g.in.c, wide, g.in.pixels()};
  const Sink sink{wide_y.data() + skip, Format::kF32, g.out.c, wide, g.out.pixels()};
  const DepthwisePlan plan(g, Direction::kForward, n);
  std::vector<std::byte> scratch(plan.shared_bytes() + plan.worker_bytes() * pool.threads());
  depthwise_forward(plan, src, {packed.data()}, bias.data(), sink, scratch.data(), pool);
  const auto y = forward(pool, x_source);
  for (size_t i = 0; i < wide_y.size(); ++i) {
    const auto pixel = static_cast<int64_t>(i) / wide, c = static_cast<int64_t>(i) % wide - skip;
    const bool ours = c >= 0 && c < g.out.c;
    ASSERT_EQ(wide_y[i], ours ? y[static_cast<size_t>(pixel * g.out.c + c)] : 7.0f) << i;
  }
}

TEST_P(DepthwiseTest, accumulates_into_what_is_there) {
  base::ThreadPool pool(2);
  const auto before = drawn_floats(5, n * g.in.elements());
  const auto dx = backward_data(pool);
  auto got = before;
  backward_data(pool, got, true);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], before[i] + dx[i]) << i;
}

INSTANTIATE_TEST_SUITE_P(shapes, DepthwiseTest, testing::ValuesIn(kDepthwiseCases), kCaseName);
// Padding wider than half a kernel asks for two passes.
INSTANTIATE_TEST_SUITE_P(
    shapes, DepthwiseJointTest,
    testing::ValuesIn(those(kDepthwiseCases,
                            [](const DepthwiseCase& c) {
                              return DepthwiseGradPlan(geometry_of(c), c.samples, 0).joins_data();
                            })),
    kCaseName);
INSTANTIATE_TEST_SUITE_P(
    shapes, DepthwiseGhostTest,
    testing::ValuesIn(those(kDepthwiseCases, [](const DepthwiseCase& c) { return c.samples > 1; })),
    kCaseName);

}  // namespace
}  // namespace tri::ops
