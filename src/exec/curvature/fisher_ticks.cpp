// The pass of Estimator::kFisher. Frozen statistics make samples independent, so the backward pass
// with the gradient of the *sum* of losses carries every sample's own gradient in its slice of each
// tensor; ticks here only multiply slices. F = 1/b sum of g_i g_i^T has the non-zero eigenvalues of
// K = 1/b [g_i . g_j].
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/philox.h"
#include "exec/curvature/symmetric_eigen.h"
#include "exec/curvature/vector_gram.h"
#include "exec/curvature/weight_gram.h"
#include "exec/step_builder.h"

namespace tri::exec {
namespace {

double* layer_gram(const StepRun& run, int layer) {
  const int64_t b = run.plan->spec.samples;
  return reinterpret_cast<double*>(run.at(run.plan->gram)) + layer * b * b;
}

// The class of sample n: -log softmax of its true label goes to `loss`, a class drawn from softmax
// is returned. `logits`: room for one row.
int32_t draw_label(const StepRun& run, int64_t n, int64_t classes, float* logits, double& loss) {
  ops::load_rows(run.source(run.graph().logits), {n, 0, 1, 0, classes}, logits, classes);
  const double top = double{*std::max_element(logits, logits + classes)};
  double sum = 0;
  for (int64_t k = 0; k < classes; ++k) sum += std::exp(double{logits[k]} - top);
  loss = top + std::log(sum) - double{logits[run.batch.labels[n]]};
  base::Stream random(run.seed, base::Purpose::kLabelSampling, run.step, run.batch.samples[n]);
  double left = sum * double{random.uniform()};
  for (int64_t k = 0; k + 1 < classes; ++k) {
    left -= std::exp(double{logits[k]} - top);
    if (left < 0) return static_cast<int32_t>(k);
  }
  return static_cast<int32_t>(classes - 1);
}

// |g_i|^2 and |mean|^2 from the products of all pairs, summed over the layers.
void report_noise(const StepRun& run, GradientNoise& noise) {
  const int64_t b = run.plan->spec.samples;
  const int layers = run.graph().model->layers;
  std::ranges::fill(noise.squared_norms, 0.0);
  double all = 0;
  for (int layer = 0; layer < layers; ++layer) {
    const double* gram = layer_gram(run, layer);
    for (int64_t i = 0; i < b; ++i) {
      noise.squared_norms[static_cast<size_t>(i)] += gram[i * b + i];
      all += gram[i * b + i];
      for (int64_t j = 0; j < i; ++j) all += 2 * gram[i * b + j];
    }
  }
  const auto count = static_cast<double>(b);
  const double mean = all / (count * count);
  const double squares =
      std::accumulate(noise.squared_norms.begin(), noise.squared_norms.end(), 0.0) / count;
  noise.variance = (squares - mean) * count / (count - 1);
  noise.squared_mean = mean - noise.variance / count;
  noise.scale = noise.squared_mean > 0 ? noise.variance / noise.squared_mean
                                       : std::numeric_limits<double>::infinity();
}

void report_layers(const StepRun& run, CurvatureReport& report) {
  const int64_t b = run.plan->spec.samples;
  for (size_t layer = 0; layer < report.layers.size(); ++layer) {
    const double* gram = layer_gram(run, static_cast<int>(layer));
    LayerCurvature& told = report.layers[layer];
    run.curvature->solver->largest({gram, static_cast<size_t>(b * b)}, 1.0 / static_cast<double>(b),
                                   told.eigenvalues);
    told.trace = 0;
    for (int64_t i = 0; i < b; ++i) told.trace += gram[i * b + i] / static_cast<double>(b);
  }
}

}  // namespace

// Between forward and loss: the labels under which the pass goes back.
void StepBuilder::fisher_labels() {
  const auto b = static_cast<size_t>(plan_.spec.samples);
  const auto layers = static_cast<size_t>(graph_.model->layers);
  const int64_t classes = tensor(graph_.logits).shape.elements();
  plan_.gram = add_buffer("gram matrices", layers * b * b * sizeof(double), memory::Kind::kScratch,
                          memory::End::kSaved, -1);
  plan_.labels =
      add_buffer("labels", b * sizeof(int32_t), memory::Kind::kScratch, memory::End::kSaved, -1);
  touch_value(graph_.logits);
  touch(plan_.gram);
  touch(plan_.labels);
  const int memory = scratch(static_cast<size_t>(classes) * sizeof(float), -1);
  add_tick("labels", Phase::kForward, [classes, memory](StepRun& run) {
    const int64_t samples = run.plan->spec.samples;
    const int layer_count = run.graph().model->layers;
    std::fill_n(layer_gram(run, 0), layer_count * samples * samples, 0.0);
    auto* labels = reinterpret_cast<int32_t*>(run.at(run.plan->labels));
    double sum = 0;
    for (int64_t n = 0; n < samples; ++n) {
      double loss = 0;
      labels[n] = draw_label(run, n, classes, run.floats(memory), loss);
      sum += loss;
    }
    run.curvature->report->loss = sum / static_cast<double>(samples);
    if (run.curvature->true_labels) std::copy_n(run.batch.labels, samples, labels);
    run.batch.labels = labels;
  });
}

void StepBuilder::fisher_op(size_t index) {
  const LoweredOp& op = graph_.ops[index];
  const nn::Node* node = node_of(op);
  if (tensor(op.output).norm >= 0) fisher_norm(tensor(op.output).norm);
  if (node == nullptr || node->weight < 0) return;
  const StepSpec& spec = plan_.spec;
  const auto weight = std::make_shared<const WeightGram>(
      parameters_.slot(static_cast<size_t>(node->weight)).geometry, spec.samples, spec.threads);
  const auto bias = node->bias < 0 ? nullptr
                                   : std::make_shared<const VectorGram>(tensor(op.output).shape,
                                                                        spec.samples, spec.threads);
  for (const int input : op.inputs) touch_value(input);
  touch_grad(op.output);
  touch(plan_.gram);
  const int memory = scratch(
      std::max(weight->scratch_bytes(), bias == nullptr ? 0 : bias->scratch_bytes()), node->layer);
  add_tick(op.name + " gram", Phase::kBackward,
           [index, layer = node->layer, weight, bias, memory](StepRun& run) {
             const LoweredOp& lowered = run.graph().ops[index];
             const ops::GradSource d = run.grad_source(lowered.output);
             double* gram = layer_gram(run, layer);
             weight->add(run.source(lowered.inputs[0]), d, gram, run.at(memory), *run.pool);
             if (bias != nullptr) bias->add(d, {}, gram, run.at(memory), *run.pool);
           });
}

void StepBuilder::fisher_norm(int norm) {
  const LoweredNorm& lowered = graph_.norms[static_cast<size_t>(norm)];
  const nn::Node& node = graph_.model->nodes[static_cast<size_t>(lowered.node)];
  // A norm before the first weight layer counts with it.
  const int layer = std::max(0, node.layer);
  const auto vectors = std::make_shared<const VectorGram>(tensor(lowered.tensor).shape,
                                                          plan_.spec.samples, plan_.spec.threads);
  touch_grad(lowered.tensor);
  touch(plan_.gram);
  const int memory = scratch(vectors->scratch_bytes(), layer);
  add_tick(node.name + " gram", Phase::kBackward, [norm, layer, vectors, memory](StepRun& run) {
    const LoweredNorm& which = run.graph().norms[static_cast<size_t>(norm)];
    vectors->add(run.grad_source(which.tensor, true), run.frozen_norm(norm), layer_gram(run, layer),
                 run.at(memory), *run.pool);
  });
}

void StepBuilder::fisher_report() {
  touch(plan_.gram);
  touch(plan_.labels);
  add_tick("eigenvalues", Phase::kBackward, [](StepRun& run) {
    if (run.curvature->true_labels)
      report_noise(run, run.curvature->report->noise);
    else
      report_layers(run, *run.curvature->report);
  });
}

}  // namespace tri::exec
