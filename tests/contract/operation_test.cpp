// Every case of operations.json: one operation's output and gradients against PyTorch's. Operations
// with kernels run through ops::make_operation, the others through the load transform they are.
#include "ops/operation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "golden/golden_file.h"
#include "ops/batch_norm/norm.h"
#include "ops/channel_scale/channel_scale.h"
#include "ops/softmax_cross_entropy/softmax_cross_entropy.h"
#include "simd/target.h"

namespace tri::contract {
namespace {

using golden::Array;
using ops::Format;
using ops::OpKind;
using tensor::Shape;

constexpr size_t kThreads = 2;

Shape shape_of(const Array& a) {
  if (a.dims.size() < 4) return {1, 1, a.dims.back()};
  return {a.dims[2], a.dims[3], a.dims[1]};
}

// (N, C, H, W) to (N, H, W, C).
std::vector<float> channels_last(const Array& a) {
  const Shape s = shape_of(a);
  std::vector<float> out(a.values.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const int64_t n = at / s.elements(), c = at % s.elements() / s.pixels(), p = at % s.pixels();
    out[static_cast<size_t>((n * s.pixels() + p) * s.c + c)] = static_cast<float>(a.values[i]);
  }
  return out;
}

std::vector<float> floats(const Array& a) { return {a.values.begin(), a.values.end()}; }

ops::Stored stored(const std::vector<float>& v, const Shape& s) {
  return {v.data(), Format::kF32, s.c, s.c, s.pixels()};
}
ops::Sink sink(std::vector<float>& v, const Shape& s) {
  return {v.data(), Format::kF32, s.c, s.c, s.pixels()};
}

double largest(const Array& a) {
  double most = 0;
  for (const double v : a.values) most = std::max(most, std::abs(v));
  return most;
}

// A result is a sum of `terms` products, and rounding each costs at most half an ulp of the largest
// partial sum; the files' numbers have nine digits.
void expect_near(const std::vector<float>& want, const std::vector<float>& got, double terms,
                 double scale, const std::string& what) {
  ASSERT_EQ(want.size(), got.size()) << what;
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(want[i], got[i], 4 * (terms + 1) * 0x1p-24 * std::max(1.0, scale))
        << what << " at " << i;
}

struct Keep final : ops::GradConsumer {
  explicit Keep(int64_t count) : grad(static_cast<size_t>(count)) {}
  void consume(size_t, int64_t begin, int64_t count, const float* from) noexcept override {
    std::copy_n(from, count, grad.begin() + begin);
  }
  std::vector<float> grad;
};

// Counts how often it was told of each number.
struct Counter final : ops::RowWatcher {
  Counter(int64_t samples, const Shape& tensor_shape)
      : shape(tensor_shape), told(static_cast<size_t>(samples * shape.elements())) {}
  void finished(const ops::RowRange& r, size_t worker) noexcept override {
    if (worker >= kThreads) told[0] += 2;
    for (int64_t row = r.sample * shape.pixels() + r.pixel, i = 0; i < r.count; ++i, ++row)
      for (int64_t c = r.channel; c < r.channel + r.channels; ++c)
        told[static_cast<size_t>(row * shape.c + c)] += 1;
  }
  bool each_once() const {
    return std::ranges::all_of(told, [](const auto& count) { return count == 1; });
  }
  Shape shape;
  std::vector<std::atomic<int>> told;
};

class GoldenOperation : public testing::TestWithParam<golden::Operation> {
 protected:
  const golden::Operation& op = GetParam();
  const Array& input = op.inputs.at("x");
  const Shape in = shape_of(input), out = shape_of_output();
  const int64_t samples = input.dims[0];
  const std::vector<float> x = channels_last(input);
  base::ThreadPool pool{kThreads};

  Shape shape_of_output() const { return op.output.dims.empty() ? Shape{} : shape_of(op.output); }

  void run_kernel() {
    ops::OperationSpec spec;
    spec.kind = op.kind;
    spec.attr = op.attributes;
    spec.inputs = {in};
    spec.output = out;
    spec.samples = samples;
    spec.threads = kThreads;
    if (op.kind == OpKind::kLinear) spec.attr.flattened_from = in;
    const auto operation = ops::make_operation(spec);
    const ops::Needs& needs = operation->needs();
    std::vector<std::byte> scratch(
        std::max({needs.forward_scratch, needs.backward_scratch, needs.weights_scratch}) + 64);
    std::vector<std::byte> saved(needs.saved_bytes + 64);
    std::vector<float> y(static_cast<size_t>(samples * out.elements()), NAN);
    std::vector<float> dx(x.size(), NAN);
    const std::vector<float> dy = channels_last(op.upstream);
    const auto aligned = [](std::vector<std::byte>& v) {
      return v.data() + (64 - reinterpret_cast<uintptr_t>(v.data()) % 64) % 64;
    };
    ops::Source source;
    source.stored = stored(x, in);
    Counter written(samples, out), returned(samples, in);
    ops::Sink input_grad = sink(dx, in);
    input_grad.watcher = &returned;
    ops::PassArguments pass;
    pass.pool = &pool;
    pass.scratch = aligned(scratch);
    pass.saved = aligned(saved);
    pass.inputs = {&source, 1};
    pass.output = sink(y, out);
    pass.output.watcher = &written;
    pass.output_grad.grad = stored(dy, out);
    pass.input_grads = {&input_grad, 1};
    const bool weighted = op.parameters.contains("weight");
    ops::ConvGeometry geometry;
    std::vector<float> panels, bias(static_cast<size_t>(out.c) + 64), bias_grad(bias.size());
    if (weighted) {
      geometry = op.kind == OpKind::kLinear ? ops::linear_geometry(spec.attr, in)
                                            : ops::conv_geometry(spec.attr, in, out);
      panels.resize(static_cast<size_t>(geometry.weight_count()));
      ops::pack_weights(geometry, floats(op.parameters.at("weight")).data(), panels.data());
      pass.weights.data = panels.data();
      if (op.parameters.contains("bias")) {
        std::ranges::copy(floats(op.parameters.at("bias")), bias.begin());
        pass.bias = bias.data();
        pass.bias_grad = bias_grad.data();
      }
    }
    const double window = static_cast<double>(op.attributes.kernel_h * op.attributes.kernel_w);
    const double terms =
        weighted ? static_cast<double>(geometry.taps() * geometry.group_in()) : window;
    operation->forward(pass);
    EXPECT_EQ(written.each_once(), needs.tells_forward);
    expect_near(channels_last(op.output), y, terms, largest(op.output), "output");
    operation->backward_data(pass);
    EXPECT_EQ(returned.each_once(), needs.tells_data);
    expect_near(channels_last(op.gradients.at("x")), dx,
                weighted ? static_cast<double>(geometry.taps() * geometry.group_out()) : window,
                largest(op.gradients.at("x")), "gradient of x");
    if (!weighted) return;
    Keep keep(geometry.weight_count());
    std::vector<float> partial(panels.size()), oihw(op.parameters.at("weight").values.size());
    pass.partial = partial.data();
    pass.consumer = &keep;
    const std::vector<float> alone = dx;
    if (needs.data_with_weights) {
      std::ranges::fill(dx, NAN);
      std::ranges::fill(returned.told, 0);
    }
    operation->backward_weights(pass);
    EXPECT_EQ(returned.each_once(), needs.tells_data);
    EXPECT_EQ(alone, dx) << "a joint pass must have the bits of a pass of its own";
    ops::unpack_weights(geometry, keep.grad.data(), oihw.data());
    const auto sums = static_cast<double>(samples * out.pixels());
    expect_near(floats(op.gradients.at("weight")), oihw, sums, largest(op.gradients.at("weight")),
                "gradient of the weight");
    if (pass.bias == nullptr) return;
    bias_grad.resize(static_cast<size_t>(out.c));
    expect_near(floats(op.gradients.at("bias")), bias_grad, sums, largest(op.gradients.at("bias")),
                "gradient of the bias");
  }

  void run_activation() {
    ops::Source source;
    source.stored = stored(x, in);
    source.activation = op.attributes.activation;
    ops::GradSource grad;
    const std::vector<float> dy = channels_last(op.upstream);
    grad.grad = stored(dy, in);
    grad.value = source;
    std::vector<float> y(x.size()), dx(x.size());
    const ops::RowRange all{0, 0, samples * in.pixels(), 0, in.c};
    ops::load_rows(source, all, y.data(), in.c);
    ops::load_grad_rows(grad, all, dx.data(), in.c);
    // A sigmoid and two products.
    expect_near(channels_last(op.output), y, 3, largest(op.output), "output");
    expect_near(channels_last(op.gradients.at("x")), dx, 4, 1, "gradient of x");
  }

  void run_norm() {
    const auto c = static_cast<size_t>(in.c);
    const ops::NormPlan plan(samples, in.pixels(), in.c, 0);
    std::vector<float> statistics(4 * c), grads(5 * c);
    std::vector<float> gamma = floats(op.parameters.at("weight"));
    std::vector<float> beta = floats(op.parameters.at("bias"));
    std::vector<float> mean = floats(op.extras.at("running_mean_before"));
    std::vector<float> variance = floats(op.extras.at("running_var_before"));
    float* s = statistics.data();
    float* g = grads.data();
    const ops::NormBatch batch{s, s + c, s + 2 * c, s + 3 * c};
    const ops::NormGrads norm_grads{g, g + c, g + 2 * c, g + 3 * c, g + 4 * c};
    const ops::NormParams params{gamma.data(), beta.data(), op.attributes.eps};
    std::vector<float> scratch((plan.shared_bytes() + kThreads * plan.worker_bytes()) / 4);
    auto* memory = reinterpret_cast<std::byte*>(scratch.data());
    ops::norm_forward(plan, stored(x, in), params, batch,
                      {mean.data(), variance.data(), op.attributes.momentum}, memory, pool);
    ops::GradSource grad;
    const std::vector<float> dy = channels_last(op.upstream);
    grad.grad = stored(dy, in);
    grad.value.stored = stored(x, in);
    grad.value.norm = {batch.scale, batch.shift, in.c, samples};
    ops::norm_backward(plan, grad, batch, params, norm_grads, false, memory, pool);
    grad.a = norm_grads.a;
    grad.b = norm_grads.b;
    grad.c = norm_grads.c;
    grad.mean = batch.mean;
    std::vector<float> y(x.size()), dx(x.size());
    const ops::RowRange all{0, 0, samples * in.pixels(), 0, in.c};
    ops::load_rows(grad.value, all, y.data(), in.c);
    ops::load_grad_rows(grad, all, dx.data(), in.c);
    const auto rows = static_cast<double>(samples * in.pixels());
    // 1 / deviation multiplies every rounding of the input.
    const double stretch = double{*std::max_element(batch.inverse, batch.inverse + c)};
    expect_near(channels_last(op.output), y, 4, stretch, "output");
    expect_near(channels_last(op.gradients.at("x")), dx, rows, stretch, "gradient of x");
    expect_near(floats(op.gradients.at("weight")), {norm_grads.gamma, norm_grads.gamma + c}, rows,
                stretch, "gradient of the weight");
    expect_near(floats(op.gradients.at("bias")), {norm_grads.beta, norm_grads.beta + c}, rows, 1,
                "gradient of the bias");
    expect_near(floats(op.extras.at("running_mean")), mean, 2, 1, "running mean");
    expect_near(floats(op.extras.at("running_var")), variance, 2, 1, "running variance");
  }

  void run_channel_scale() {
    const std::vector<float> factors = channels_last(op.inputs.at("factors"));
    const std::vector<float> dy = channels_last(op.upstream);
    ops::Source source;
    source.stored = stored(x, in);
    ops::GradSource grad;
    grad.grad = stored(dy, in);
    const ops::RowTiles tiles(samples, in);
    std::vector<float> scratch(kThreads * ops::channel_scale_worker_bytes(tiles) / 4);
    std::vector<float> dx(x.size()), df(factors.size()), y(x.size());
    ops::channel_scale_backward(tiles, grad, source, factors.data(), sink(dx, in),
                                sink(df, {1, 1, in.c}),
                                reinterpret_cast<std::byte*>(scratch.data()), pool);
    source.channel_factor = factors.data();
    for (int64_t n = 0; n < samples; ++n)
      ops::load_rows(source, {n, 0, in.pixels(), 0, in.c}, y.data() + n * in.elements(), in.c);
    expect_near(channels_last(op.output), y, 1, 1, "output");
    expect_near(channels_last(op.gradients.at("x")), dx, 1, 1, "gradient of x");
    expect_near(channels_last(op.gradients.at("factors")), df, static_cast<double>(in.pixels()), 1,
                "gradient of the factors");
  }

  void run_loss() {
    const ops::LossPlan plan{samples, in.c, op.attributes.label_smoothing};
    std::vector<double> scratch((plan.shared_bytes() + kThreads * plan.worker_bytes()) / 8);
    std::vector<float> dx(x.size());
    const std::vector<int32_t> labels(op.labels.begin(), op.labels.end());
    ops::Source source;
    source.stored = stored(x, in);
    const auto upstream = op.upstream.values.at(0);
    const ops::LossSum sum = ops::softmax_cross_entropy(
        plan, source, labels.data(), static_cast<float>(upstream / static_cast<double>(samples)),
        sink(dx, in), reinterpret_cast<std::byte*>(scratch.data()), pool);
    // Both sides compute in double precision: the files' nine digits remain.
    EXPECT_NEAR(sum.loss / static_cast<double>(samples), op.output.values.at(0),
                1e-8 * std::max(1.0, op.output.values.at(0)));
    expect_near(floats(op.gradients.at("x")), dx, 1, 1, "gradient of x");
  }
};

TEST_P(GoldenOperation, agrees_with_pytorch) {
  for (const std::string_view target : simd::runnable_targets()) {
    ASSERT_TRUE(simd::force_target(target));
    SCOPED_TRACE(target);
    if (ops::has_kernels(op.kind))
      run_kernel();
    else if (op.kind == OpKind::kActivation)
      run_activation();
    else if (op.kind == OpKind::kBatchNorm)
      run_norm();
    else if (op.kind == OpKind::kChannelScale)
      run_channel_scale();
    else if (op.kind == OpKind::kSoftmaxCrossEntropy)
      run_loss();
    else
      ADD_FAILURE() << "nobody runs " << ops::name(op.kind);
  }
  ASSERT_TRUE(simd::force_target("auto"));
}

std::vector<golden::Operation> operations() {
  Result<std::vector<golden::Operation>> read = golden::read_operations();
  return read.has_value() ? *std::move(read) : std::vector<golden::Operation>();
}

INSTANTIATE_TEST_SUITE_P(cases, GoldenOperation, testing::ValuesIn(operations()),
                         [](const auto& test) { return test.param.name; });

TEST(GoldenOperations, are_all_read) { EXPECT_EQ(operations().size(), 29u); }

}  // namespace
}  // namespace tri::contract
