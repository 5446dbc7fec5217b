#include "exec/step_run.h"

#include <algorithm>
#include <cstring>

#include "simd/convert.h"

namespace tri::exec {
namespace {

template <class T>
const T& pick(const std::vector<T>& all, int index) {
  return all[static_cast<size_t>(index)];
}

// Gradients are rounded and decoded in pieces of whole blocks.
constexpr size_t kPiece = 1024;
static_assert(kPiece % optim::kBlock == 0);
constexpr size_t kUpdateTile = 8192;

optim::Noise noise_of(const StepRun& run, size_t index) {
  return {run.seed, run.step, static_cast<uint32_t>(index)};
}

// Calls body(first, count, piece) for pieces of `grad` as they are once stored in `format`.
template <class Body>
void for_each_rounded(Format format, const float* grad, size_t count, Body body) {
  if (format == Format::kF32) return body(size_t{0}, count, grad);
  std::byte narrow[kPiece * sizeof(float)];
  float rounded[kPiece];
  for (size_t first = 0; first < count; first += kPiece) {
    const size_t some = std::min(kPiece, count - first);
    simd::encode(format, grad + first, narrow, some);
    simd::decode(format, narrow, rounded, some);
    body(first, some, rounded);
  }
}

}  // namespace

ops::Source StepRun::source(int t) const {
  const LoweredTensor& tensor = pick(graph().tensors, t);
  if (tensor.scaled >= 0) {
    ops::Source source_of_scaled = source(tensor.scaled);
    source_of_scaled.channel_factor = floats(pick(plan->factors, tensor.factor));
    return source_of_scaled;
  }
  const TensorSlots& slots = pick(plan->tensors, t);
  ops::Source source;
  source.stored = {slots.data < 0 ? static_cast<const void*>(batch.x) : at(slots.data), slots.y,
                   tensor.shape.c, tensor.shape.c, tensor.shape.pixels()};
  source.activation = tensor.activation;
  if (tensor.norm >= 0) {
    const ops::NormBatch norm = norm_batch(tensor.norm);
    const ops::NormPlan& norm_plan = *pick(plan->norms, tensor.norm).plan;
    source.norm = {norm.scale, norm.shift, plan->spec.frozen() ? 0 : tensor.shape.c,
                   norm_plan.ghost};
  }
  if (tensor.depth >= 0) source.sample_factor = floats(pick(plan->depths, tensor.depth));
  if (!plan->gates.empty() && pick(plan->gates, t) >= 0)
    source.gates = reinterpret_cast<const ops::Gate*>(at(pick(plan->gates, t)));
  return source;
}

ops::GradSource StepRun::grad_source(int t, bool before_norm) const {
  const LoweredTensor& tensor = pick(graph().tensors, t);
  const TensorSlots& slots = pick(plan->tensors, t);
  ops::GradSource grad;
  grad.grad = {at(slots.grad), slots.gy, tensor.shape.c, tensor.shape.c, tensor.shape.pixels()};
  if (tensor.scaled >= 0) return grad;
  grad.value = source(t);
  if (tensor.norm >= 0 && !before_norm && plan->spec.frozen()) {
    grad.a = grad.value.norm.scale;
  } else if (tensor.norm >= 0 && !before_norm) {
    if (pick(plan->norms, tensor.norm).rewrites) {
      grad.value.activation = ops::Activation::kNone;
      grad.value.sample_factor = nullptr;
    }
    const ops::NormGrads norm = norm_grads(tensor.norm);
    grad.a = norm.a;
    grad.b = norm.b;
    grad.c = norm.c;
    grad.mean = norm_batch(tensor.norm).mean;
  }
  return grad;
}

const float* StepRun::replaced(int parameter) const {
  if (curvature == nullptr || curvature->probe.replaced.empty()) return nullptr;
  return pick(curvature->probe.replaced, parameter);
}

ops::Weights StepRun::weights(const nn::Node& node) const {
  if (const float* copy = replaced(node.weight)) {
    ops::Weights weights;
    weights.data = copy;
    return weights;
  }
  return parameters->weights(static_cast<size_t>(node.weight), plan->formats(node.layer).p);
}

const float* StepRun::vector(int parameter) const {
  const float* copy = replaced(parameter);
  return copy != nullptr ? copy : parameters->vector(static_cast<size_t>(parameter));
}

ops::Sink StepRun::data_sink(int t) const {
  const LoweredTensor& tensor = pick(graph().tensors, t);
  const TensorSlots& slots = pick(plan->tensors, t);
  return {at(slots.data), slots.y, tensor.shape.c, tensor.shape.c, tensor.shape.pixels(), false};
}

ops::Sink StepRun::grad_sink(int t, bool accumulate) const {
  const LoweredTensor& tensor = pick(graph().tensors, t);
  const TensorSlots& slots = pick(plan->tensors, t);
  return {at(slots.grad),        slots.gy,  tensor.shape.c, tensor.shape.c,
          tensor.shape.pixels(), accumulate};
}

ops::NormBatch StepRun::norm_batch(int norm) const {
  const NormSlots& slots = pick(plan->norms, norm);
  float* first = floats(slots.batch);
  const int64_t each = slots.plan->ghosts * slots.plan->channels;
  if (plan->spec.frozen()) return {nullptr, nullptr, first, first + slots.plan->channels};
  return {first, first + each, first + 2 * each, first + 3 * each};
}

ops::NormGrads StepRun::norm_grads(int norm) const {
  const NormSlots& slots = pick(plan->norms, norm);
  float* first = floats(slots.grads);
  const int64_t each = slots.plan->ghosts * slots.plan->channels;
  const int64_t padded = (slots.plan->channels + 31) / 32 * 32;
  return {first, first + each, first + 2 * each, first + 3 * each, first + 3 * each + padded};
}

ops::NormParams StepRun::norm_params(int norm) const {
  const nn::Node& node = pick(graph().model->nodes, pick(graph().norms, norm).node);
  return {vector(node.weight), vector(node.bias), node.attr.eps};
}

FrozenNorm StepRun::frozen_norm(int norm) const {
  const int node = pick(graph().norms, norm).node;
  return {parameters->running_mean(node).data(), parameters->running_variance(node).data(),
          pick(graph().model->nodes, node).attr.eps};
}

size_t update_scratch_bytes(size_t count, size_t threads) {
  const size_t tiles = (count + kUpdateTile - 1) / kUpdateTile;
  return tiles * sizeof(optim::GradStats) + threads * kPiece * sizeof(float);
}

void update_parameter(const StepRun& run, size_t index, const void* grad, Format format,
                      std::byte* scratch) {
  const optim::ParamStorage& storage = run.parameters->slot(index).storage;
  const size_t count = run.parameters->slot(index).count;
  const size_t tiles = (count + kUpdateTile - 1) / kUpdateTile;
  const size_t width = numeric::storage_bytes(format);
  auto* stats = reinterpret_cast<optim::GradStats*>(scratch);
  auto* rooms = reinterpret_cast<float*>(scratch + tiles * sizeof(optim::GradStats));
  optim::Coefficients coefficients = run.coefficients[index];

  // Calls body(tile, begin, count, gradient as fp32) for pieces of all tiles.
  const auto for_each_piece = [&](auto body) {
    run.pool->run(tiles, [&](size_t tile, size_t worker) {
      float* room = rooms + worker * kPiece;
      const size_t end = std::min(count, (tile + 1) * kUpdateTile);
      for (size_t begin = tile * kUpdateTile; begin < end; begin += kPiece) {
        const size_t some = std::min(kPiece, end - begin);
        const auto* from = static_cast<const std::byte*>(grad) + begin * width;
        if (format != Format::kF32) simd::decode(format, from, room, some);
        body(tile, begin, some,
             format == Format::kF32 ? reinterpret_cast<const float*>(from) : room);
      }
    });
  };
  if (optim::needs_norms(coefficients.rule) && run.parameters->slot(index).dense) {
    static_assert(sizeof(optim::Norms) <= sizeof(optim::GradStats));
    auto* norms = reinterpret_cast<optim::Norms*>(scratch);
    std::fill_n(norms, tiles, optim::Norms{});
    for_each_piece([&](size_t tile, size_t begin, size_t some, const float* piece) {
      norms[tile] += optim::measure(coefficients, storage, begin, some, piece);
    });
    optim::Norms all;
    for (size_t tile = 0; tile < tiles; ++tile) all += norms[tile];
    optim::apply_trust(coefficients, run.hypers[index], all);
  }
  std::fill_n(stats, tiles, optim::GradStats{});
  for_each_piece([&](size_t tile, size_t begin, size_t some, const float* piece) {
    stats[tile] += optim::update(coefficients, storage, begin, some, piece, noise_of(run, index));
  });
  optim::GradStats all;
  for (size_t tile = 0; tile < tiles; ++tile) all += stats[tile];
  run.report->gradients[index] = all;
}

FusedUpdate::FusedUpdate(const StepRun& run, size_t index, Format gp, optim::GradStats* stats)
    : run_(run), index_(index), gp_(gp), stats_(stats) {}

void FusedUpdate::consume(size_t part, int64_t begin, int64_t count, const float* grad) noexcept {
  const optim::ParamStorage& storage = run_.parameters->slot(index_).storage;
  const optim::Coefficients& coefficients = run_.coefficients[index_];
  optim::GradStats sum;
  for_each_rounded(gp_, grad, static_cast<size_t>(count),
                   [&](size_t first, size_t some, const float* piece) {
                     sum += optim::update(coefficients, storage, static_cast<size_t>(begin) + first,
                                          some, piece, noise_of(run_, index_));
                   });
  stats_[part] = sum;
}

void FusedUpdate::finish(size_t parts) const {
  optim::GradStats all;
  for (size_t part = 0; part < parts; ++part) all += stats_[part];
  run_.report->gradients[index_] = all;
}

void KeepGradient::consume(size_t, int64_t begin, int64_t count, const float* grad) noexcept {
  simd::encode(format_, grad,
               gradient_ + static_cast<size_t>(begin) * numeric::storage_bytes(format_),
               static_cast<size_t>(count));
}

void KeepRounded::consume(size_t, int64_t begin, int64_t count, const float* grad) noexcept {
  for_each_rounded(
      gp_, grad, static_cast<size_t>(count), [&](size_t first, size_t some, const float* piece) {
        std::memmove(gradient_ + static_cast<size_t>(begin) + first, piece, some * sizeof(float));
      });
}

}  // namespace tri::exec
