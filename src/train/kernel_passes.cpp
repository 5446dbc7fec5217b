#include "train/kernel_passes.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "ops/batch_norm/norm.h"
#include "ops/conv2d/conv_geometry.h"
#include "ops/operation.h"
#include "simd/convert.h"

namespace tri::train {
namespace {

using numeric::Format;
using ops::OpKind;
using tensor::Shape;

// Of images, which a first layer reads as they lie and hands no gradient to.
constexpr int64_t kColours = 3;
constexpr size_t kBeyondCaches = size_t{64} << 20;

// Numbers of about 1 with both signs, so that an activation has something to do.
std::vector<std::byte> numbers(size_t count, Format storage) {
  std::vector<float> values(count);
  uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
  }
  std::vector<std::byte> stored(count * numeric::storage_bytes(storage));
  simd::encode(storage, values.data(), stored.data(), count);
  return stored;
}

// A tensor as a network would hold it, with its norm.
struct Held {
  Held(const Shape& of, int64_t n, Format format) : shape(of), samples(n), storage(format) {
    data = numbers(static_cast<size_t>(samples * shape.elements()), storage);
    ones.assign(static_cast<size_t>(shape.c), 1.0f);
    zeros.assign(static_cast<size_t>(shape.c), 0.0f);
  }
  double bytes() const { return static_cast<double>(data.size()); }
  ops::Stored stored() const { return {data.data(), storage, shape.c, shape.c, shape.pixels()}; }
  ops::Sink sink() { return {data.data(), storage, shape.c, shape.c, shape.pixels()}; }
  // Normalised and rectified, as nearly all inputs of nearly all layers are.
  ops::Source source() const {
    ops::Source read;
    read.stored = stored();
    if (shape.c == kColours) return read;
    read.norm = {ones.data(), zeros.data(), 0, samples};
    read.activation = ops::Activation::kRelu;
    return read;
  }
  ops::GradSource gradient(const Held& values) const {
    return {stored(), values.source(), ones.data(), zeros.data(), zeros.data(), zeros.data()};
  }

  Shape shape;
  int64_t samples;
  Format storage;
  std::vector<std::byte> data;
  std::vector<float> ones, zeros;
};

struct Discard final : ops::GradConsumer {
  void consume(size_t, int64_t, int64_t, const float*) noexcept override {}
};

Shape output_of(const KernelShape& shape) {
  if (shape.kind == OpKind::kAdd) return shape.in;  // of one input, it stores a transform's result
  const std::vector<Shape> inputs(static_cast<size_t>(shape.inputs), shape.in);
  const Result<Shape> out = ops::infer(shape.kind, shape.attr, inputs);
  TRI_CHECK(out.has_value(), "{}", out.error().message);
  return *out;
}

int64_t samples_of(const KernelShape& shape, const Shape& out, Format storage) {
  if (shape.samples > 0) return shape.samples;
  const auto each = static_cast<size_t>(shape.inputs * shape.in.elements() + out.elements()) *
                    numeric::storage_bytes(storage);
  return static_cast<int64_t>(kBeyondCaches / each + 1);
}

// What the passes of one operation share.
struct Operands {
  Operands(const KernelShape& shape, Format storage, base::ThreadPool& threads)
      : pool(threads),
        out(output_of(shape)),
        samples(samples_of(shape, out, storage)),
        y(out, samples, storage),
        gy(out, samples, storage),
        gx(shape.in, samples, storage) {
    const std::vector<Shape> shapes(static_cast<size_t>(shape.inputs), shape.in);
    operation = ops::make_operation({.kind = shape.kind,
                                     .attr = shape.attr,
                                     .inputs = shapes,
                                     .output = out,
                                     .samples = samples,
                                     .threads = pool.threads(),
                                     .working = storage});
    for (int64_t i = 0; i < shape.inputs; ++i) x.emplace_back(shape.in, samples, storage);
    for (const Held& input : x) sources.push_back(input.source());
    sinks.assign(static_cast<size_t>(shape.inputs), ops::Sink{});
    sinks[0] = gx.sink();
    const ops::Needs& needs = operation->needs();
    scratch.resize(
        std::max({needs.forward_scratch, needs.backward_scratch, needs.weights_scratch}));
    saved.resize(needs.saved_bytes);
    ids.resize(static_cast<size_t>(samples));
    std::iota(ids.begin(), ids.end(), uint64_t{0});
    if (shape.kind == OpKind::kConv2d || shape.kind == OpKind::kLinear) {
      const ops::ConvGeometry geometry = shape.kind == OpKind::kLinear
                                             ? ops::linear_geometry(shape.attr, shape.in)
                                             : ops::conv_geometry(shape.attr, shape.in, out);
      const auto count = static_cast<size_t>(geometry.weight_count());
      weights = numbers(count, storage);
      partial.resize(count);
      format = storage;
    }
  }

  ops::PassArguments arguments() {
    ops::PassArguments pass;
    pass.pool = &pool;
    pass.scratch = scratch.data();
    pass.saved = saved.data();
    pass.inputs = sources;
    pass.output = y.sink();
    pass.output_grad = gy.gradient(y);
    pass.input_grads = sinks;
    pass.weights = {.data = weights.data(), .format = format, .working = format};
    pass.partial = partial.data();
    pass.consumer = &discard;
    pass.samples = ids.data();
    return pass;
  }

  base::ThreadPool& pool;
  Shape out;
  int64_t samples;
  std::unique_ptr<ops::Operation> operation;
  std::vector<Held> x;
  Held y, gy, gx;
  std::vector<ops::Source> sources;
  std::vector<ops::Sink> sinks;
  std::vector<std::byte> scratch, saved, weights;
  std::vector<float> partial;
  std::vector<uint64_t> ids;  // of samples, all different
  Format format = Format::kF32;
  Discard discard;
};

}  // namespace

std::vector<KernelPass> operation_passes(const std::string& kernel, const KernelShape& shape,
                                         Format storage, base::ThreadPool& pool) {
  const auto bench = std::make_shared<Operands>(shape, storage, pool);
  const bool weighted = !bench->weights.empty();
  const bool dense = weighted && shape.attr.groups == 1;
  const double flops = dense ? 2.0 * static_cast<double>(bench->operation->needs().macs) *
                                   static_cast<double>(bench->samples)
                             : 0.0;
  const double held = static_cast<double>(bench->weights.size() + bench->saved.size());
  double read = 0;
  for (const Held& input : bench->x) read += input.bytes();
  const double out = bench->y.bytes();
  std::vector<KernelPass> passes;
  passes.push_back({kernel + " forward", flops, read + out + held,
                    [bench] { bench->operation->forward(bench->arguments()); }});
  // The gradient, the values that its activation needs, and the result.
  if (shape.in.c != kColours)
    passes.push_back({kernel + " backward-data", flops, 2 * out + bench->gx.bytes() + held,
                      [bench] { bench->operation->backward_data(bench->arguments()); }});
  if (weighted)
    passes.push_back({kernel + " backward-weights", flops, 2 * out + read + held, [bench] {
                        ops::PassArguments pass = bench->arguments();
                        pass.input_grads = {};  // not both passes at once
                        bench->operation->backward_weights(pass);
                      }});
  for (KernelPass& pass : passes) pass.multiplies_bf16 = bench->operation->needs().multiplies_bf16;
  return passes;
}

std::vector<KernelPass> norm_passes(const Shape& shape, Format storage, base::ThreadPool& pool) {
  struct Norm {
    Norm(const Shape& of, int64_t samples, Format format, size_t threads)
        : plan(samples, of.pixels(), of.c, samples),
          y(of, samples, format),
          gy(of, samples, format),
          numbers(9 * static_cast<size_t>(of.c)),
          scratch(plan.shared_bytes() + threads * plan.worker_bytes()) {}
    float* at(int64_t index) { return numbers.data() + index * y.shape.c; }
    ops::NormPlan plan;
    Held y, gy;
    std::vector<float> numbers;
    std::vector<std::byte> scratch;
    ops::NormBatch batch() { return {at(0), at(1), at(2), at(3)}; }
    ops::NormParams params() const { return {y.ones.data(), y.zeros.data(), 1e-5f}; }
    ops::NormGrads grads() { return {at(4), at(5), at(6), at(7), at(8)}; }
  };
  const auto each = static_cast<size_t>(shape.elements()) * numeric::storage_bytes(storage);
  const auto samples = static_cast<int64_t>(kBeyondCaches / each + 1);
  const auto norm = std::make_shared<Norm>(shape, samples, storage, pool.threads());
  const double bytes = norm->y.bytes();
  return {{"batch norm forward", 0, bytes,
           [norm, &pool] {
             ops::norm_forward(norm->plan, norm->y.stored(), norm->params(), norm->batch(), {},
                               norm->scratch.data(), pool);
           }},
          {"batch norm backward", 0, 2 * bytes, [norm, &pool] {
             ops::norm_backward(norm->plan, norm->gy.gradient(norm->y), norm->batch(),
                                norm->params(), norm->grads(), false, norm->scratch.data(), pool);
           }}};
}

KernelPass update_pass(optim::Rule rule, optim::WeightForm weights, optim::StateForm state,
                       base::ThreadPool& pool) {
  constexpr size_t kCount = size_t{16} << 20, kTile = size_t{16} << 10;
  struct Parameter {
    std::vector<std::byte> weights, state;
    optim::ParamStorage storage;
    std::vector<float> grad;
    optim::Coefficients coefficients;
    optim::Noise noise;
  };
  const auto made = std::make_shared<Parameter>();
  const size_t moments = optim::moments(rule);
  constexpr size_t kAlignment = 64;
  made->weights.resize(optim::weight_bytes(weights, kCount) + kAlignment);
  made->state.resize(optim::state_bytes(state, kCount, moments) + kAlignment);
  const auto aligned = [](std::vector<std::byte>& block) {
    void* first = block.data();
    size_t room = block.size();
    return static_cast<std::byte*>(std::align(kAlignment, 1, first, room));
  };
  made->storage =
      optim::bind(weights, state, kCount, moments, aligned(made->weights), aligned(made->state));
  made->grad.assign(kCount, 0.01f);
  optim::init_storage(made->storage, made->grad);
  made->coefficients = optim::coefficients(rule, {.lr = 1e-3, .weight_decay = 1e-4});
  const double bytes =
      2.0 * static_cast<double>(made->weights.size() + made->state.size()) + 4.0 * kCount;
  return {fmt::format("{} update", optim::name(rule)), 0, bytes, [made, &pool] {
            ++made->noise.step;
            pool.run(kCount / kTile, [&](size_t tile, size_t) {
              optim::update(made->coefficients, made->storage, tile * kTile, kTile,
                            made->grad.data() + tile * kTile, made->noise);
            });
          }};
}

}  // namespace tri::train
