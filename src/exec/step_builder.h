#pragma once
// Room: exec. Builds a StepPlan tick by tick: forward here, backward in step_backward.cpp. Every
// tick touches the buffers it uses; first and last touch are a buffer's life.
#include <array>
#include <initializer_list>
#include <string>
#include <utility>

#include "exec/curvature/layer_vector.h"
#include "exec/step_run.h"

namespace tri::exec {

class StepBuilder {
 public:
  StepBuilder(const Lowered& graph, const Parameters& parameters, const StepSpec& spec);
  StepPlan build() &&;

 private:
  using Run = std::function<void(StepRun&)>;

  const LoweredTensor& tensor(int t) const { return graph_.tensors[static_cast<size_t>(t)]; }
  TensorSlots& slots(int t) { return plan_.tensors[static_cast<size_t>(t)]; }
  // The tensor whose numbers a product of squeeze-excite reads; any other is itself.
  int stored(int t) const { return tensor(t).scaled >= 0 ? tensor(t).scaled : t; }
  const nn::Node* node_of(const LoweredOp& op) const;
  ops::Operation* operation(size_t op) { return plan_.operations[op].get(); }

  // Bookkeeping.
  int add_buffer(std::string name, size_t bytes, memory::Kind kind, memory::End end, int layer);
  size_t now() const { return plan_.ticks.size(); }  // the tick being built
  void touch(int buffer);
  void hold(int buffer) { held_.push_back(buffer); }  // alive in all ticks
  void drop(int buffer) { plan_.buffers[static_cast<size_t>(buffer)].lives.emplace_back(); }
  void touch_value(int t);   // everything that reading tensor t needs
  void touch_grad(int t);    // everything that reading the gradient of the stored t needs
  void touch_factor(int t);  // what its gradient lies under
  int scratch(size_t bytes, int layer);  // for this tick only; -1 for none
  void add_tick(std::string name, Phase phase, Run run);
  static std::byte* memory_of(const StepRun& run, int buffer) {
    return buffer < 0 ? nullptr : run.at(buffer);
  }

  void make_operations();
  void make_tensors();
  void forward();
  void forward_op(size_t index, bool again = false);
  void drop_tensors();
  void make_again(const Segment& segment);
  bool make_light(int t);
  void make_light_of(size_t index);
  void scale_factors(const LoweredOp& op);
  void norm_forward(int norm);
  int norm_scratch(int norm);
  void loss();

  // step_backward.cpp
  void backward();
  void backward_op(size_t index);
  void norm_backward(int norm);
  void add_backward(size_t index);
  void scale_backward(size_t index);
  void pool_backward(size_t index);
  void data_backward(size_t index);
  void weights_backward(size_t index);
  // A bias by the gradient at the start of `buffer`; gamma and beta by those of their norm.
  void step_bias(int bias, const std::string& name, int buffer);
  void step_norm(int norm);
  void update_after();
  // What a curvature pass does with an operation's gradients, and at the end.
  void measure_op(size_t index) {
    plan_.spec.curvature.estimator == Estimator::kFisher ? fisher_op(index) : hessian_op(index);
  }
  void measure_report() {
    plan_.spec.curvature.estimator == Estimator::kFisher ? fisher_report() : hessian_report();
  }
  // curvature/fisher_ticks.cpp
  void fisher_labels();
  void fisher_op(size_t index);
  void fisher_norm(int norm);
  void fisher_report();
  // curvature/hessian_ticks.cpp
  void hessian_vectors();
  int64_t hessian_offset(int parameter) const;
  void hessian_gates(int t);
  void hessian_op(size_t index);
  void hessian_norm(int norm);
  void hessian_report();
  bool wants_grad(int t) const { return wants_grad_[static_cast<size_t>(t)]; }
  // The buffer of t's gradient, made at its first contribution; says whether it was there before.
  bool open_grad(int t);
  bool rewrites_grad(int t) const;
  bool reads_under_factor(size_t scale) const;
  void scale_sums(size_t index, bool accumulate);
  // The norm of the tensor whose gradient goes to `sink` (tensor, accumulate), if `op` is the last
  // to add to it and can make the norm's sums; or -1.
  int watched_norm(size_t op, const std::pair<int, bool>& sink);
  bool may_alias(size_t add, int input, const std::vector<int>& aliased) const;
  // Sums wait for the next micro-batch.
  bool accumulates() const { return plan_.spec.micros > 1; }
  // Weights step as their gradient comes; exact clipping can wait where the sums are kept anyway.
  bool fused() const {
    return plan_.spec.mode == StepMode::kFused &&
           !(accumulates() && plan_.spec.clip == Clip::kExact);
  }
  bool keeps_gradients() const { return !fused() || accumulates(); }
  int keep_gradient(int parameter, Format format, int layer);

  void place();

  const Lowered& graph_;
  const Parameters& parameters_;
  StepPlan plan_;
  std::vector<bool> wants_grad_;  // by tensor
  std::vector<bool> dropped_;     // by buffer: given up after forward, made again for backward
  std::vector<bool> light_;  // by tensor: dropped as Note [Light tensors] says, and not yet back
  std::vector<int> held_;    // buffers
  bool in_backward_ = false;
  int op_ = -1;  // whose ticks are being built
  struct {
    std::shared_ptr<std::vector<LayerVector>> layers;
    std::array<int, 4> rooms;  // buffers of power iteration
  } hessian_;
  std::vector<size_t> first_reader_;  // by tensor: the op that comes last on the way back
  // Gradients (tensor, accumulate) that the weights' tick of the op at hand writes as well, and the
  // norm whose sums it makes.
  std::vector<std::pair<int, bool>> joined_;
  int joined_norm_ = -1;
};

}  // namespace tri::exec
