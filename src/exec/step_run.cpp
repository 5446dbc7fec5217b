#include "exec/step_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "simd/convert.h"
#include "simd/finite.h"

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

// Calls body(first, count, piece) for pieces of `grad` as they are once stored in `format`. Returns
// how many were beyond it: a format without infinities tells in no other way.
template <class Body>
uint64_t for_each_rounded(Format format, const float* grad, size_t count, Body body) {
  if (format == Format::kF32) {
    body(size_t{0}, count, grad);
    return 0;
  }
  float rounded[kPiece];
  uint64_t beyond = 0;
  for (size_t first = 0; first < count; first += kPiece) {
    const size_t some = std::min(kPiece, count - first);
    beyond += simd::round_to(format, grad + first, rounded, some);
    body(first, some, rounded);
  }
  return beyond;
}

}  // namespace

void StepReport::clear() {
  loss = {};
  std::ranges::fill(gradients, optim::GradStats{});
  std::ranges::fill(saved, ops::StoreCounts{});
  std::ranges::fill(passed, ops::StoreCounts{});
  std::ranges::fill(lost, uint8_t{0});
  skipped = false;
  first_bad = -1;
}

void StepRun::note_passed(int t, const ops::StoreCounts& counts) const {
  if (part != Pass::kApply) report->passed[static_cast<size_t>(t)] += counts;
  if (counts.overflow > 0) report->skip(pick(graph().tensors, t).layer);
}

void StepRun::note_gradient(size_t parameter, const optim::GradStats& stats) const {
  report->gradients[parameter] = stats;
  if (stats.nonfinite > 0) report->skip(layer_of(parameter));
}

void StepRun::check_vector(size_t parameter, const float* grad) const {
  if (!simd::all_finite(grad, parameters->slot(parameter).count)) report->skip(layer_of(parameter));
}

ops::Source StepRun::source(int t) const {
  const LoweredTensor& tensor = pick(graph().tensors, t);
  if (tensor.scaled >= 0) {
    ops::Source source_of_scaled = source(tensor.scaled);
    source_of_scaled.channel_factor = floats(pick(plan->factors, tensor.factor));
    return source_of_scaled;
  }
  const TensorSlots& slots = pick(plan->tensors, t);
  ops::Source source;
  source.stored = {slots.data < 0 ? static_cast<const void*>(batch.x) : at(slots.data),
                   slots.y,
                   tensor.shape.c,
                   tensor.shape.c,
                   tensor.shape.pixels(),
                   value_scale(t)};
  source.activation = tensor.activation;
  source.of_half = slots.of_half;
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
  grad.grad = {at(slots.grad),        slots.gy,        tensor.shape.c, tensor.shape.c,
               tensor.shape.pixels(), grad_scale_of(t)};
  if (tensor.scaled >= 0) return grad;
  grad.value = source(t);
  if (slots.grad_factor >= 0 && (before_norm || slots.factored_sums >= 0)) {
    grad.value.channel_factor = floats(pick(plan->factors, slots.grad_factor));
    grad.channel_addend = floats(slots.grad_addend);
  }
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
  return {at(slots.data),        slots.y, tensor.shape.c, tensor.shape.c,
          tensor.shape.pixels(), false,   value_scale(t)};
}

float StepRun::value_scale(int t) const {
  const int layer = pick(graph().tensors, t).layer;
  return layer >= 0 && ops::takes_scale(pick(plan->tensors, t).y) ? scales[layer].y : 1.0f;
}

// Tensors that share a buffer (Note [Shared gradients]) share the scale of the layer it was made
// for.
float StepRun::grad_scale_of(int t) const {
  const TensorSlots& slots = pick(plan->tensors, t);
  const int layer = pick(plan->buffers, slots.grad).layer;
  return layer >= 0 && ops::takes_scale(slots.gy) ? scales[layer].gy : 1.0f;
}

ops::Sink StepRun::grad_sink(int t, bool accumulate) const {
  const LoweredTensor& tensor = pick(graph().tensors, t);
  const TensorSlots& slots = pick(plan->tensors, t);
  return {at(slots.grad),        slots.gy,   tensor.shape.c,  tensor.shape.c,
          tensor.shape.pixels(), accumulate, grad_scale_of(t)};
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

WatchedNorm::WatchedNorm(const StepRun& run, int norm, ops::Sink* sink) : run_(run), norm_(norm) {
  if (norm < 0 || !pick(run.plan->norms, norm).grad_watched) return;
  const NormSlots& slots = pick(run.plan->norms, norm);
  const ops::Rewrite rewrite = !slots.rewrites     ? ops::Rewrite::kNever
                               : slots.grad_passed ? ops::Rewrite::kWhenPassed
                                                   : ops::Rewrite::kWhenSummed;
  TRI_CHECK(rewrite != ops::Rewrite::kWhenPassed || !sink->accumulate);
  sums_.emplace(*slots.plan, run.grad_source(pick(run.graph().norms, norm).tensor, true),
                run.norm_batch(norm).mean, rewrite, run.at(slots.grad_sums));
  sink->watcher = &*sums_;
}

WatchedNorm::~WatchedNorm() {
  if (sums_) run_.note_passed(pick(run_.graph().norms, norm_).tensor, sums_->lost());
}

size_t update_scratch_bytes(size_t count, size_t threads) {
  const size_t tiles = (count + kUpdateTile - 1) / kUpdateTile;
  return tiles * sizeof(optim::GradStats) + threads * kPiece * sizeof(float);
}

namespace {

// The factor that brings a gradient of this norm (with the loss scale) down to the limit.
float clip_factor(const StepRun& run, double sum_squares) {
  const double norm = std::sqrt(sum_squares) * double{run.inverse_scale};
  return static_cast<float>(std::min(1.0, double{run.plan->spec.clip_norm} / (norm + 1e-6)));
}

// A gradient that lies whole in memory, visited in pieces of fixed tiles on the pool.
struct WholeGradient {
  WholeGradient(const StepRun& step_run, size_t parameter, const void* gradient, Format its_format,
                std::byte* scratch)
      : run(step_run),
        index(parameter),
        grad(static_cast<const std::byte*>(gradient)),
        format(its_format),
        count(step_run.parameters->slot(parameter).count),
        tiles((count + kUpdateTile - 1) / kUpdateTile),
        sums(scratch),
        rooms(reinterpret_cast<float*>(scratch + tiles * sizeof(optim::GradStats))) {}

  // Calls visit(begin, count, gradient as fp32) for all pieces and joins what it returns, a Sum, in
  // their order.
  template <class Sum, class Visit>
  Sum join(Visit visit) const {
    static_assert(sizeof(Sum) <= sizeof(optim::GradStats));
    auto* parts = reinterpret_cast<Sum*>(sums);
    std::fill_n(parts, tiles, Sum{});
    run.pool->run(tiles, [&](size_t tile, size_t worker) {
      float* room = rooms + worker * kPiece;
      const size_t end = std::min(count, (tile + 1) * kUpdateTile);
      for (size_t begin = tile * kUpdateTile; begin < end; begin += kPiece) {
        const size_t some = std::min(kPiece, end - begin);
        const std::byte* from = grad + begin * numeric::storage_bytes(format);
        if (format != Format::kF32) simd::decode(format, from, room, some);
        parts[tile] += visit(begin, some,
                             format == Format::kF32 ? reinterpret_cast<const float*>(from) : room);
      }
    });
    Sum all;
    for (size_t tile = 0; tile < tiles; ++tile) all += parts[tile];
    return all;
  }

  optim::GradStats stats() const {
    return join<optim::GradStats>(
        [](size_t, size_t some, const float* piece) { return optim::stats_of(piece, some); });
  }

  const StepRun& run;
  size_t index;
  const std::byte* grad;
  Format format;
  size_t count, tiles;
  std::byte* sums;
  float* rooms;
};

}  // namespace

optim::GradStats whole_stats(const StepRun& run, size_t index, const void* grad, Format format,
                             std::byte* scratch) {
  return WholeGradient(run, index, grad, format, scratch).stats();
}

void update_parameter(const StepRun& run, size_t index, const void* grad, Format format,
                      std::byte* scratch) {
  const WholeGradient whole(run, index, grad, format, scratch);
  const bool lost_by_loss = run.report->skipped && run.report->first_bad < 0;
  if (run.part == Pass::kMeasure || (lost_by_loss && run.last_micro()))
    return run.note_gradient(index, whole.stats());
  if (!run.updates(run.layer_of(index))) return;
  const optim::ParamStorage& storage = run.parameters->slot(index).storage;
  optim::Coefficients coefficients = run.coefficients[index];
  coefficients.grad_scale *= run.clip;
  if (run.plan->spec.clip == Clip::kLayer)
    coefficients.grad_scale *= clip_factor(run, whole.stats().sum_squares);
  if (optim::needs_norms(coefficients.rule) && run.parameters->slot(index).dense) {
    const auto norms = whole.join<optim::Norms>([&](size_t begin, size_t some, const float* piece) {
      return optim::measure(coefficients, storage, begin, some, piece);
    });
    optim::apply_trust(coefficients, run.hypers[index], norms);
  }
  run.note_gradient(
      index, whole.join<optim::GradStats>([&](size_t begin, size_t some, const float* piece) {
        return optim::update(coefficients, storage, begin, some, piece, noise_of(run, index));
      }));
}

void clip_exactly(StepRun& run) {
  double sum_squares = 0;
  for (size_t p = 0; p < run.report->gradients.size(); ++p) {
    if (!run.loses(run.layer_of(p))) sum_squares += run.report->gradients[p].sum_squares;
  }
  run.clip = clip_factor(run, sum_squares);
}

FusedUpdate::FusedUpdate(const StepRun& run, size_t index, Format gp, optim::GradStats* stats)
    : run_(run),
      index_(index),
      gp_(gp),
      stats_(stats),
      coefficients_(run.coefficients[index]),
      updates_(run.updates(run.layer_of(index))) {
  coefficients_.grad_scale *= run.clip;
}

bool FusedUpdate::may_reach(float magnitude) const {
  const double scaled = double{magnitude} * std::max(1.0, double{coefficients_.grad_scale});
  return scaled <= double{numeric::max_finite(Format::kF32)};
}

// Half of the range: sums of rounded products may exceed the bound of exact ones by a little.
void FusedUpdate::expect(float most) noexcept {
  finite_ = finite_ || (most <= numeric::max_finite(gp_) / 2 && may_reach(2 * most));
}

void FusedUpdate::consume(size_t part, int64_t begin, int64_t count, const float* grad) noexcept {
  const optim::ParamStorage& storage = run_.parameters->slot(index_).storage;
  optim::GradStats sum;
  const uint64_t beyond = for_each_rounded(
      gp_, grad, static_cast<size_t>(count), [&](size_t first, size_t some, const float* piece) {
        sum += updates_ && finite_
                   ? optim::update(coefficients_, storage, static_cast<size_t>(begin) + first, some,
                                   piece, noise_of(run_, index_))
                   : optim::stats_of(piece, some);
      });
  sum.nonfinite = std::max(sum.nonfinite, beyond);
  stats_[part] = sum;
}

bool FusedUpdate::join(size_t parts) {
  optim::GradStats all;
  for (size_t part = 0; part < parts; ++part) all += stats_[part];
  const bool looked = updates_ && !finite_;
  if (looked && all.nonfinite == 0 && !may_reach(all.max_abs)) all.nonfinite = 1;
  run_.note_gradient(index_, all);
  finite_ = all.nonfinite == 0;
  return looked && finite_;
}

void KeepGradient::consume(size_t, int64_t begin, int64_t count, const float* grad) noexcept {
  const size_t width = numeric::storage_bytes(format_);
  const auto keep = [&](size_t first, size_t some, const float* piece) {
    std::byte* to = gradient_ + (static_cast<size_t>(begin) + first) * width;
    if (simd::encode(format_, piece, to, some).overflow > 0 || !simd::all_finite(piece, some))
      ++lost_;
  };
  // Storing rounds by itself.
  lost_ +=
      for_each_rounded(gp_ == format_ ? Format::kF32 : gp_, grad, static_cast<size_t>(count), keep);
}

KeepSums::KeepSums(const StepRun& run, size_t index, std::byte* sums, Format format)
    : sums_(sums),
      format_(format),
      // A stream of its own beside those of the weights and moments (optim/kernel.h).
      key_(numeric::noise_key(run.seed + static_cast<uint64_t>(run.micro) + 1, run.step,
                              uint64_t{index} * 4 + 3)) {}

void KeepSums::consume(size_t, int64_t begin, int64_t count, const float* grad) noexcept {
  std::byte* to = sums_ + static_cast<size_t>(begin) * numeric::storage_bytes(format_);
  const auto n = static_cast<size_t>(count);
  if (format_ != Format::kF32)
    simd::encode_stochastic(format_, grad, to, n, key_, static_cast<uint32_t>(begin));
  else if (reinterpret_cast<const float*>(to) != grad)
    std::memcpy(to, grad, n * sizeof(float));
}

}  // namespace tri::exec
