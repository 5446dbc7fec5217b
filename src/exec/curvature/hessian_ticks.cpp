// The pass of Estimator::kHessian. H_l v = (grad_l(w + e v) - grad_l(w - e v)) / 2 e, where only
// layer l moves: both gradients need the forward pass from layer l on and the backward pass down to
// it. All tensors of a first forward pass are kept, and the ticks that layer l touches are run
// again and again. Their order is that of the plan, so every buffer is what the plan says it is.
#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "base/philox.h"
#include "exec/curvature/layer_vector.h"
#include "exec/curvature/vector_gram.h"
#include "exec/step_builder.h"
#include "ops/rows/row_tiles.h"

namespace tri::exec {
namespace {

// Keeps a gradient, or what is left of it once another one is subtracted.
class KeepDifference final : public ops::GradConsumer {
 public:
  explicit KeepDifference(const LayerProbe& probe, int64_t offset)
      : to_(probe.gradient + offset), subtract_(probe.subtract), factor_(probe.factor) {}
  void consume(size_t, int64_t begin, int64_t count, const float* grad) noexcept override {
    float* to = to_ + begin;
    for (int64_t i = 0; i < count; ++i) to[i] = subtract_ ? factor_ * (to[i] - grad[i]) : grad[i];
  }

 private:
  float* to_;
  bool subtract_;
  float factor_;
};

// Where power iteration works; all of a layer's size.
struct Rooms {
  float* product;  // Hv
  float* moved;    // the parameters w, moved along v
  float* found;    // eigenvectors, one after the other
  double* sums;
};

class PowerIteration {
 public:
  PowerIteration(StepRun& run, const LayerVector& layer, const Rooms& rooms)
      : run_(run), layer_(layer), rooms_(rooms), spec_(run.plan->spec.curvature) {
    probe().layer = layer.layer;
    probe().gradient = rooms.product;
  }

  void run() {
    LayerCurvature& told = run_.curvature->report->layers[static_cast<size_t>(layer_.layer)];
    told.products = 0;
    step_ = difference_step(run_, layer_, rooms_.sums);
    // A gradient lies mostly among the leading eigenvectors: a warm start that keeps nothing.
    gradient(false, 0.0f);
    for (const LayerPart& part : layer_.parts)
      probe().replaced[part.parameter] = rooms_.moved + part.offset;
    for (size_t k = 0; k < spec_.top; ++k) {
      if (k > 0) draw_start(k);
      told.eigenvalues[k] = eigenvalue(k, told.products);
    }
    std::ranges::sort(told.eigenvalues, std::greater<>());
    // The tensors behind the layer as they were.
    for (const LayerPart& part : layer_.parts) probe().replaced[part.parameter] = nullptr;
    replay(layer_.forward);
    probe().layer = -1;
  }

 private:
  LayerProbe& probe() { return run_.curvature->probe; }
  float* found(size_t k) const { return rooms_.found + static_cast<int64_t>(k) * layer_.size; }
  void replay(const std::vector<size_t>& ticks) {
    for (const size_t tick : ticks) run_.plan->ticks[tick].run(run_);
  }
  void gradient(bool subtract, float factor) {
    probe().subtract = subtract;
    probe().factor = factor;
    replay(layer_.backward);
  }

  void draw_start(size_t k) {
    // This estimator draws no labels, so their stream is free.
    const base::Stream random(run_.seed, base::Purpose::kLabelSampling, run_.step,
                              static_cast<uint64_t>(layer_.layer) * spec_.top + k);
    for (int64_t i = 0; i < layer_.size; i += 4) {
      const base::Philox::Words words = random.block(static_cast<uint64_t>(i) / 4);
      for (int64_t lane = 0; lane < 4; ++lane)
        rooms_.product[i + lane] = base::uniform_float(words[static_cast<size_t>(lane)]) - 0.5f;
    }
  }

  // Takes the eigenvectors found so far out of the product; returns what is left of its length.
  double deflate(size_t count) {
    for (size_t k = 0; k < count; ++k)
      add_scaled(-dot(rooms_.product, found(k), layer_.size, rooms_.sums, *run_.pool), found(k),
                 rooms_.product, layer_.size, *run_.pool);
    return std::sqrt(dot(rooms_.product, rooms_.product, layer_.size, rooms_.sums, *run_.pool));
  }

  // Hv for v = product / length. Leaves the parameters at w - step v.
  void multiply(double length) {
    move(run_, layer_, static_cast<float>(double{step_} / length), rooms_.product, rooms_.moved);
    replay(layer_.forward);
    gradient(false, 0.0f);
    reflect(run_, layer_, rooms_.moved);
    replay(layer_.forward);
    gradient(true, 0.5f / step_);
  }

  // The eigenvalue of largest magnitude besides those of the first `k` eigenvectors, from a start
  // in the product's room; its vector becomes the next. Zero where there is none.
  double eigenvalue(size_t k, int64_t& products) {
    double lambda = 0, length = deflate(k);
    for (int64_t i = 0; i < spec_.iterations && length > 0 && std::isfinite(length); ++i) {
      multiply(length);
      ++products;
      length = deflate(k);
      const MovedSums sums = moved_sums(run_, layer_, rooms_.moved, rooms_.product, rooms_.sums);
      lambda = sums.along * double{step_} / sums.squares;  // v . Hv / v . v
      const double residual = std::sqrt(std::max(0.0, length * length - lambda * lambda));
      if (residual <= spec_.tolerance * std::abs(lambda)) break;
    }
    if (k + 1 < spec_.top)
      for (int64_t i = 0; i < layer_.size; ++i)
        found(k)[i] = length > 0 ? static_cast<float>(double{rooms_.product[i]} / length) : 0.0f;
    return lambda;
  }

  StepRun& run_;
  const LayerVector& layer_;
  const Rooms& rooms_;
  const CurvatureSpec& spec_;
  float step_ = 0.0f;
};

// Which operations see a change of this layer's parameters.
std::vector<bool> touched_ops(const Lowered& graph, const std::vector<bool>& of_layer) {
  std::vector<bool> tensors(graph.tensors.size(), false), ops(graph.ops.size(), false);
  for (size_t i = 0; i < ops.size(); ++i) {
    const LoweredOp& op = graph.ops[i];
    ops[i] = of_layer[i] ||
             std::ranges::any_of(op.inputs, [&](int t) { return tensors[static_cast<size_t>(t)]; });
    tensors[static_cast<size_t>(op.output)] = ops[i];
  }
  return ops;
}

}  // namespace

// The vectors live from the first tick to the last, so that no other buffer of the pass may lie
// where they do.
void StepBuilder::hessian_vectors() {
  const StepSpec& spec = plan_.spec;
  std::vector<LayerVector> layers(static_cast<size_t>(graph_.model->layers));
  for (size_t l = 0; l < layers.size(); ++l) layers[l].layer = static_cast<int>(l);
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const ParameterSlot& slot = parameters_.slot(p);
    LayerVector& layer = layers[static_cast<size_t>(
        std::max(0, graph_.model->nodes[static_cast<size_t>(slot.node)].layer))];
    layer.parts.push_back({p, layer.size});
    layer.size += static_cast<int64_t>(slot.count);
  }
  plan_.gates.assign(graph_.tensors.size(), -1);
  int64_t most = 0;
  size_t sums = 0;
  for (const LayerVector& layer : layers) {
    most = std::max(most, layer.size);
    sums = std::max(sums, sums_bytes(layer));
  }
  const auto room = [&](const char* name, size_t bytes) {
    const int buffer = add_buffer(name, std::max<size_t>(1, bytes), memory::Kind::kScratch,
                                  memory::End::kSaved, -1);
    touch(buffer);
    return buffer;
  };
  const size_t bytes = static_cast<size_t>(most) * sizeof(float);
  hessian_.layers = std::make_shared<std::vector<LayerVector>>(std::move(layers));
  hessian_.rooms = {room("product", bytes), room("moved parameters", bytes),
                    room("eigenvectors", (spec.curvature.top - 1) * bytes), room("sums", sums)};
}

int64_t StepBuilder::hessian_offset(int parameter) const {
  for (const LayerVector& layer : *hessian_.layers)
    for (const LayerPart& part : layer.parts)
      if (part.parameter == static_cast<size_t>(parameter)) return part.offset;
  return -1;
}

// Note [Kinks]. The Hessian of a relu network is that of the linear pieces around the point; the
// gradient's jumps where pieces meet are no part of it, but differences would count every one that
// a step crosses, the more of them the better for power iteration. So the sides of all kinks are
// kept from the first forward pass: one byte per number behind a relu, and a max pool's choices.
void StepBuilder::hessian_gates(int t) {
  const LoweredTensor& value = tensor(t);
  if (value.activation != ops::Activation::kRelu && value.activation != ops::Activation::kRelu6)
    return;
  const ops::RowTiles tiles(plan_.spec.samples, value.shape);
  touch_value(t);
  plan_.gates[static_cast<size_t>(t)] = add_buffer(
      value.name + "/gates", static_cast<size_t>(plan_.spec.samples * value.shape.elements()),
      memory::Kind::kActivations, memory::End::kSaved, value.layer);
  touch(plan_.gates[static_cast<size_t>(t)]);
  const int memory = scratch(plan_.spec.threads * tiles.tile_bytes(), value.layer);
  const int op = std::exchange(op_, -1);  // not one of those that are run again
  add_tick(value.name + " gates", Phase::kUpdate, [t, tiles, memory](StepRun& run) {
    auto* gates = reinterpret_cast<ops::Gate*>(run.at(run.plan->gates[static_cast<size_t>(t)]));
    const ops::Source source = run.source(t);
    run.pool->run(tiles.tiles(), [&](size_t tile, size_t worker) {
      const ops::RowRange range = tiles.range(tile);
      ops::load_gates(source, range,
                      gates + (range.sample * tiles.pixels + range.pixel) * tiles.channels,
                      reinterpret_cast<float*>(run.at(memory) + worker * tiles.tile_bytes()));
    });
  });
  op_ = op;
}

void StepBuilder::hessian_op(size_t index) {
  const LoweredOp& op = graph_.ops[index];
  const nn::Node* node = node_of(op);
  if (tensor(op.output).norm >= 0) hessian_norm(tensor(op.output).norm);
  if (node == nullptr || node->weight < 0) return;
  const ops::Needs& needs = operation(index)->needs();
  for (const int input : op.inputs) touch_value(input);
  touch_grad(op.output);
  const auto floats = [&](int p) {
    return parameters_.slot(static_cast<size_t>(p)).count * sizeof(float);
  };
  const int partial = needs.whole_gradient ? scratch(floats(node->weight), node->layer) : -1;
  const int bias_grad = node->bias < 0 ? -1 : scratch(floats(node->bias), node->layer);
  const int memory = scratch(needs.weights_scratch, node->layer);
  const int64_t weight_at = hessian_offset(node->weight);
  const int64_t bias_at = node->bias < 0 ? -1 : hessian_offset(node->bias);
  add_tick(
      op.name + " gradient", Phase::kUpdate,
      [index, layer = node->layer, weight_at, bias_at, partial, bias_grad, memory](StepRun& run) {
        const LayerProbe& probe = run.curvature->probe;
        if (probe.layer != layer) return;
        const LoweredOp& lowered = run.graph().ops[index];
        run.sources->clear();
        for (const int input : lowered.inputs) run.sources->push_back(run.source(input));
        KeepDifference keep(probe, weight_at);
        ops::PassArguments pass;
        pass.pool = run.pool;
        pass.scratch = memory_of(run, memory);
        pass.inputs = *run.sources;
        pass.output_grad = run.grad_source(lowered.output);
        pass.partial = reinterpret_cast<float*>(memory_of(run, partial));
        pass.consumer = &keep;
        const size_t bias_bytes =
            bias_grad < 0 ? 0 : run.plan->buffers[static_cast<size_t>(bias_grad)].bytes;
        if (bias_grad >= 0) {
          pass.bias_grad = run.floats(bias_grad);
          std::fill_n(pass.bias_grad, bias_bytes / sizeof(float), 0.0f);
        }
        run.plan->operations[index]->backward_weights(pass);
        if (bias_grad >= 0)
          KeepDifference(probe, bias_at)
              .consume(0, 0, static_cast<int64_t>(bias_bytes / sizeof(float)), pass.bias_grad);
      });
}

void StepBuilder::hessian_norm(int norm) {
  const LoweredNorm& lowered = graph_.norms[static_cast<size_t>(norm)];
  const nn::Node& node = graph_.model->nodes[static_cast<size_t>(lowered.node)];
  const int layer = std::max(0, node.layer);
  const auto vectors = std::make_shared<const VectorGram>(tensor(lowered.tensor).shape,
                                                          plan_.spec.samples, plan_.spec.threads);
  touch_grad(lowered.tensor);
  const int rows = scratch(vectors->row_bytes(), layer);
  const int memory = scratch(vectors->load_bytes(), layer);
  const int64_t gamma_at = hessian_offset(node.weight), beta_at = hessian_offset(node.bias);
  add_tick(
      node.name + " gradient", Phase::kUpdate,
      [norm, layer, vectors, rows, memory, gamma_at, beta_at](StepRun& run) {
        const LayerProbe& probe = run.curvature->probe;
        if (probe.layer != layer) return;
        const LoweredNorm& which = run.graph().norms[static_cast<size_t>(norm)];
        float* all = run.floats(rows);
        vectors->load(run.grad_source(which.tensor, true), run.frozen_norm(norm), all,
                      run.at(memory), *run.pool);
        for (int64_t c = 0; c < vectors->stride(); ++c) {
          double sum = 0;
          for (int64_t n = 0; n < run.plan->spec.samples; ++n)
            sum += double{all[n * vectors->stride() + c]};
          all[c] = static_cast<float>(sum);
        }
        KeepDifference(probe, beta_at).consume(0, 0, vectors->padded(), all);
        KeepDifference(probe, gamma_at).consume(0, 0, vectors->padded(), all + vectors->padded());
      });
}

// What a change of each layer touches, and the tick in which all the work is done.
void StepBuilder::hessian_report() {
  for (LayerVector& layer : *hessian_.layers) {
    std::vector<bool> of_layer(graph_.ops.size(), false);
    for (size_t i = 0; i < of_layer.size(); ++i) {
      const LoweredOp& op = graph_.ops[i];
      const nn::Node* node = node_of(op);
      const int norm = tensor(op.output).norm;
      const bool weight = node != nullptr && node->weight >= 0 && node->layer == layer.layer;
      const bool vectors =
          norm >= 0 &&
          std::max(0, graph_.model
                          ->nodes[static_cast<size_t>(graph_.norms[static_cast<size_t>(norm)].node)]
                          .layer) == layer.layer;
      of_layer[i] = weight || vectors;
    }
    const std::vector<bool> touched = touched_ops(graph_, of_layer);
    const auto reads_touched = [&](size_t op) {
      return std::ranges::any_of(graph_.ops[op].inputs, [&](int t) {
        const int producer = tensor(t).producer;
        return producer >= 0 && touched[static_cast<size_t>(producer)];
      });
    };
    for (size_t t = 0; t < plan_.ticks.size(); ++t) {
      const Tick& tick = plan_.ticks[t];
      const auto op = static_cast<size_t>(std::max(0, tick.op));
      if (tick.op < 0 && tick.phase == Phase::kForward)
        layer.backward.push_back(t);  // the loss
      else if (tick.op < 0)
        continue;
      else if (tick.phase == Phase::kForward && touched[op])
        layer.forward.push_back(t);
      else if (tick.phase == Phase::kBackward && reads_touched(op))
        layer.backward.push_back(t);
      else if (tick.phase == Phase::kUpdate && of_layer[op])
        layer.backward.push_back(t);
    }
  }
  for (size_t b = 0; b < plan_.buffers.size(); ++b)
    if (plan_.buffers[b].end == memory::End::kSaved) touch(static_cast<int>(b));
  add_tick("power iteration", Phase::kUpdate,
           [layers = hessian_.layers, rooms = hessian_.rooms](StepRun& run) {
             run.curvature->report->loss =
                 run.report->loss.loss / static_cast<double>(run.plan->spec.samples);
             const Rooms work{run.floats(rooms[0]), run.floats(rooms[1]), run.floats(rooms[2]),
                              reinterpret_cast<double*>(run.at(rooms[3]))};
             for (const LayerVector& layer : *layers) PowerIteration(run, layer, work).run();
           });
}

}  // namespace tri::exec
