#include "train/governing.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "exec/lowering.h"

namespace tri::train {
namespace {

using control::PrecisionPolicy;
using ops::OpKind;

size_t index(int i) { return static_cast<size_t>(i); }

bool is_gemm(const nn::Node& node) {
  return node.kind == OpKind::kConv2d || node.kind == OpKind::kLinear;
}

int64_t elements(const nn::Model& model, int parameter) {
  return parameter < 0 ? 0 : model.parameters[index(parameter)].elements();
}

std::vector<control::LayerFacts> facts_of(const nn::Model& model, const exec::Lowered& lowered) {
  std::vector<control::LayerFacts> facts(index(model.layers));
  for (const nn::Node& node : model.nodes) {
    if (!is_gemm(node)) continue;
    facts[index(node.layer)].name = node.name;
    facts[index(node.layer)].params = elements(model, node.weight);
  }
  for (const exec::LoweredTensor& tensor : lowered.tensors) {
    if (tensor.layer < 0 || tensor.scaled >= 0) continue;
    facts[index(tensor.layer)].y_elements += tensor.shape.elements();
  }
  return facts;
}

std::vector<control::AssignOp> ops_of(const nn::Model& model, const exec::Lowered& lowered) {
  using Kind = control::AssignOp::Kind;
  std::vector<control::AssignOp> ops;
  for (const nn::Node& node : model.nodes) {
    const Kind kind = node.kind == OpKind::kInput ? Kind::kInput
                      : is_gemm(node)             ? Kind::kGemm
                                                  : Kind::kOther;
    const int64_t params = elements(model, node.weight) + elements(model, node.bias);
    ops.push_back({kind, params, node.shape.elements(), node.inputs, node.layer, false});
  }
  for (const exec::LoweredOp& op : lowered.ops) {
    const bool has_bytes = lowered.tensors[index(op.output)].scaled < 0;
    if (op.node >= 0 && has_bytes) ops[index(op.node)].stored = true;
  }
  return ops;
}

PrecisionPolicy policy_of(const Precision& precision) {
  using Policy = Precision::Policy;
  switch (precision.policy) {
    case Policy::kAdaptive:
      return PrecisionPolicy::kAdaptive;
    case Policy::kFp32:
      return PrecisionPolicy::kFp32;
    case Policy::kBf16:
      return PrecisionPolicy::kBf16;
    case Policy::kFp16:
      return PrecisionPolicy::kFp16;
    case Policy::kFp16x169:
      return PrecisionPolicy::kFp16x169;
    case Policy::kFp8:
      return PrecisionPolicy::kFp8;
    case Policy::kHfp8:
      return PrecisionPolicy::kHfp8;
    case Policy::kAssign:
      return PrecisionPolicy::kAssign;
  }
  return PrecisionPolicy::kFp32;
}

control::ElasticSettings elastic_of(const Config& config) {
  const int64_t ghost = *config.ghost_batch;
  return {.unit = ghost > 0                                  ? ghost
                  : config.batch_mode == BatchMode::kElastic ? *config.batch_min
                                                             : 1,
          .least = *config.batch_min,
          .most = *config.batch_max,
          .delta_up = *config.delta_up,
          .delta_down = *config.delta_down,
          .rho_low = config.rho_low,
          .rho_high = config.rho_high,
          .noise_scale = config.noise_scale};
}

control::GovernorSettings settings_of(const Config& config, uint64_t epoch_samples) {
  control::GovernorSettings settings;
  settings.precision = policy_of(config.precision);
  settings.adaptive = {.beta = config.beta,
                       .relative = config.variance_rule == VarianceRule::kRelative,
                       .tau_low = config.tau_low,
                       .tau_high = config.tau_high,
                       .tau_curv = config.tau_curv};
  settings.assign = {.low_share = config.precision.low_share,
                     .order = static_cast<control::AssignmentOrder>(config.assign_order),
                     .seed = static_cast<uint64_t>(config.seed)};
  settings.promote_share = config.assign_promote;
  settings.loss_scale.on = scales_loss(settings.precision);
  if (settings.precision != PrecisionPolicy::kFp16) {  // paper (c)
    settings.loss_scale.growth_steps = 0;
    settings.loss_scale.growth_samples = epoch_samples;
  }
  // Steps of all rules but SGD do not grow with the gradient, so curvature says nothing of their
  // size; and a rate that is multiplied with a trust ratio has no edge of stability at 2 / rate.
  const bool rescales = config.optimizer != "sgd";
  const bool trusts = config.optimizer == "lars" || config.optimizer == "lamb";
  if (trusts && !config.tau_curv) {
    settings.adaptive.tau_curv = std::numeric_limits<double>::infinity();
  }
  settings.step_size = {.on = config.curvature != Curvature::kOff && (!rescales || config.alpha),
                        .alpha = config.alpha};
  settings.batching = config.batch_mode == BatchMode::kElastic ? control::BatchPolicy::kElastic
                      : config.batch_mode == BatchMode::kMicro ? control::BatchPolicy::kMicro
                                                               : control::BatchPolicy::kFixed;
  settings.elastic = elastic_of(config);
  settings.first_batch = config.batch;
  settings.ghost = *config.ghost_batch;
  settings.recompute = config.recompute == Recompute::kAuto;
  return settings;
}

double share(uint64_t count, double all) { return all > 0 ? static_cast<double>(count) / all : 0; }

}  // namespace

control::Governor make_governor(const Config& config, const nn::Model& model,
                                uint64_t epoch_samples) {
  const exec::Lowered lowered = exec::lower(model, {true, config.recompute == Recompute::kOff});
  return {settings_of(config, epoch_samples), facts_of(model, lowered), ops_of(model, lowered)};
}

std::vector<exec::LayerFormats> formats_of(const control::PrecisionTable& table) {
  std::vector<exec::LayerFormats> formats;
  for (const control::PrecisionRow& row : table) formats.push_back({row.p, row.y, row.gy, row.gp});
  return formats;
}

control::PrecisionTable table_of(const std::vector<exec::LayerFormats>& formats) {
  control::PrecisionTable table;
  for (const exec::LayerFormats& row : formats) table.push_back({row.p, row.y, row.gy, row.gp});
  return table;
}

control::Signals signals_of(const exec::Engine& engine, const exec::StepReport& report,
                            int64_t batch) {
  const nn::Model& model = engine.model();
  control::Signals signals;
  signals.steps = 1;
  signals.batch = batch;
  signals.failed = report.skipped;
  signals.first_bad = report.first_bad;
  signals.layers.resize(index(model.layers));
  for (const nn::Node& node : model.nodes) {
    if (!is_gemm(node)) continue;
    const optim::GradStats& stats = report.gradients[index(node.weight)];
    const auto count = static_cast<uint64_t>(elements(model, node.weight));
    control::LayerSignals& layer = signals.layers[index(node.layer)];
    const control::Moments moments{stats.sum, stats.sum_squares,
                                   count - std::min(count, stats.nonfinite)};
    layer.spread = moments.variance() * static_cast<double>(batch);
    layer.nonfinite = stats.nonfinite;
  }
  // Of a row's tensors the one that fares worst.
  const exec::Lowered& lowered = engine.lowered();
  for (size_t t = 1; t < lowered.tensors.size(); ++t) {
    const exec::LoweredTensor& tensor = lowered.tensors[t];
    if (tensor.layer < 0) continue;
    control::LayerSignals& layer = signals.layers[index(tensor.layer)];
    const double all = static_cast<double>(batch * tensor.shape.elements());
    const ops::StoreCounts& y = report.saved[t];
    const ops::StoreCounts& gy = report.passed[t];
    layer.y_overflow = std::max(layer.y_overflow, share(y.overflow, all));
    layer.y_underflow = std::max(layer.y_underflow, share(y.underflow, all));
    layer.y_amax = std::max(layer.y_amax, double{y.max_abs});
    layer.gy_overflow = std::max(layer.gy_overflow, share(gy.overflow, all));
    layer.gy_underflow = std::max(layer.gy_underflow, share(gy.underflow, all));
    layer.gy_amax = std::max(layer.gy_amax, double{gy.max_abs});
  }
  return signals;
}

void add_weight_overflows(exec::Engine& engine, control::Signals& signals) {
  const nn::Model& model = engine.model();
  const exec::Parameters& parameters = engine.parameters();
  std::vector<float> values, room;
  for (const nn::Node& node : model.nodes) {
    if (!is_gemm(node)) continue;
    const numeric::Format format = engine.spec().formats[index(node.layer)].p;
    const float limit = numeric::overflow_threshold(format);
    uint64_t beyond = 0;
    // Piece by piece: a whole weight beside the engine would not be within the ceiling.
    for (size_t i = 0; i < parameters.pieces(index(node.weight)); ++i) {
      values.resize(parameters.piece(index(node.weight), i).count);
      parameters.get_piece(index(node.weight), i, values, room);
      beyond += static_cast<uint64_t>(std::ranges::count_if(
          values, [limit](float value) { return !(std::abs(value) < limit); }));
    }
    signals.layers[index(node.layer)].p_overflow =
        share(beyond, static_cast<double>(elements(model, node.weight)));
  }
}

}  // namespace tri::train
