#include <algorithm>
#include <optional>
#include <variant>

#include "ops/conv2d/bias_grad.h"
#include "ops/conv2d/depthwise_op.h"
#include "ops/conv2d/gather_conv.h"
#include "ops/conv2d/pointwise.h"
#include "ops/conv2d/winograd.h"
#include "ops/conv2d/winograd_outer.h"
#include "ops/operation.h"

namespace tri::ops {
namespace {

using DensePlan = std::variant<GatherPlan, WinogradPlan>;
using WeightsPlan = std::variant<OuterPlan, WinogradOuterPlan>;

KernelChoice dense_choice(const ConvGeometry& geometry, Products products) {
  if (suits_winograd(geometry, products)) return {Kernel::kWinograd, Kernel::kDirect};
  if (can_winograd(geometry)) return {Kernel::kDirect, Kernel::kWinograd};
  return {};
}

KernelChoice backward_choice(const ConvGeometry& geometry, Products products) {
  if (geometry.pointwise()) {
    // One pass keeps the weights turned round, as fp32 or pairs. Wide layers have small maps or
    // none, where reading the gradient twice costs little beside a second copy of the weights.
    constexpr int64_t kMostTurned = 1 << 20;
    if (geometry.weight_count() > kMostTurned) return {Kernel::kDirect, Kernel::kJoined};
    return {Kernel::kJoined, Kernel::kDirect};
  }
  return dense_choice(geometry, products);
}

DensePlan dense_plan(const ConvGeometry& geometry, Direction direction, int64_t samples,
                     Kernel kernel, Products products) {
  if (kernel == Kernel::kWinograd) return WinogradPlan(geometry, direction, samples, products);
  return GatherPlan(geometry, direction, samples, products);
}

WeightsPlan weights_plan(const ConvGeometry& geometry, const OperationSpec& spec,
                         Products products) {
  const Kernel kernel = backward_choice(geometry, products).of(spec.kernels.backward);
  if (kernel == Kernel::kWinograd && can_winograd_weights(geometry, products))
    return WinogradOuterPlan(geometry, spec.samples, spec.ghost, products);
  return OuterPlan(geometry, spec.samples, spec.ghost, products,
                   products == Products::kBf16 && kernel == Kernel::kJoined);
}

size_t scratch_of(const DensePlan& plan, size_t threads) {
  return std::visit([threads](const auto& p) { return p.scratch_bytes(threads); }, plan);
}

class DenseConv final : public Operation {
 public:
  DenseConv(const ConvGeometry& geometry, const OperationSpec& spec)
      : DenseConv(geometry, spec, products_for(spec.working)) {}

  DenseConv(const ConvGeometry& geometry, const OperationSpec& spec, Products products)
      : forward_(dense_plan(geometry, Direction::kForward, spec.samples,
                            dense_choice(geometry, products).of(spec.kernels.forward), products)),
        backward_(dense_plan(geometry, Direction::kBackwardData, spec.samples,
                             backward_choice(geometry, products).of(spec.kernels.backward),
                             products)),
        weights_(weights_plan(geometry, spec, products)) {
    choose(spec.kernels, dense_choice(geometry, products), backward_choice(geometry, products));
    needs_.forward_scratch = scratch_of(forward_, spec.threads);
    needs_.backward_scratch = scratch_of(backward_, spec.threads);
    std::visit(
        [&](const auto& plan) {
          data_offset_ = plan.shared_bytes() + spec.threads * plan.worker_bytes();
          needs_.whole_gradient = plan.whole_gradient();
          needs_.bounded_gradient = plan.bounded_gradient();
          needs_.gradient_parts = plan.parts();
        },
        weights_);
    needs_.weights_scratch = data_offset_;
    if (needs_.kernels.backward == Kernel::kJoined) {
      const OuterPlan& outer = std::get<OuterPlan>(weights_);
      pointwise_.emplace(outer);
      needs_.weights_scratch +=
          pointwise_->shared_bytes(outer) + spec.threads * pointwise_->worker_bytes();
    }
    if (spec.attr.bias)
      needs_.weights_scratch =
          std::max(needs_.weights_scratch, spec.threads * bias_grad_worker_bytes());
    needs_.multiplies_bf16 = products == Products::kBf16;
    needs_.data_with_weights = pointwise_.has_value();
    needs_.tells_forward = needs_.tells_data = true;
    needs_.macs = geometry.useful_macs();
  }
  StoreCounts forward(const PassArguments& pass) noexcept override {
    return std::visit(
        [&pass](const auto& plan) {
          return conv_forward(plan, pass.inputs[0], pass.weights, pass.bias, pass.output,
                              pass.scratch, *pass.pool);
        },
        forward_);
  }
  StoreCounts backward_data(const PassArguments& pass) noexcept override {
    return std::visit(
        [&pass](const auto& plan) {
          return conv_backward_data(plan, pass.output_grad, pass.weights, pass.input_grads[0],
                                    pass.scratch, *pass.pool);
        },
        backward_);
  }
  StoreCounts backward_weights(const PassArguments& pass) noexcept override {
    if (const auto* plan = std::get_if<WinogradOuterPlan>(&weights_)) {
      bias_gradient(*plan, pass);
      conv_backward_weights(*plan, pass.inputs[0], pass.output_grad, pass.initial, pass.partial,
                            *pass.consumer, pass.scratch, *pass.pool);
      return {};
    }
    const OuterPlan& outer = std::get<OuterPlan>(weights_);
    bias_gradient(outer, pass);
    std::optional<PointwiseData> data;
    if (pointwise_ && !pass.input_grads.empty() && pass.input_grads[0].data != nullptr)
      data.emplace(outer, *pointwise_, pass.weights, pass.input_grads[0],
                   pass.scratch + data_offset_, *pass.pool);
    conv_backward_weights(outer, pass.inputs[0], pass.output_grad, pass.initial, pass.partial,
                          *pass.consumer, pass.scratch, *pass.pool, data ? &*data : nullptr);
    return data ? data->total() : StoreCounts{};
  }

 private:
  template <class Plan>
  static void bias_gradient(const Plan& plan, const PassArguments& pass) {
    const Shape& out = plan.geometry.out;
    if (pass.bias_grad != nullptr)
      bias_grad(plan.samples, out.pixels(), out.c, pass.output_grad, pass.bias_grad, pass.scratch,
                *pass.pool);
  }

  DensePlan forward_, backward_;
  WeightsPlan weights_;
  std::optional<PointwisePlan> pointwise_;
  size_t data_offset_ = 0;  // of its scratch
};

}  // namespace

std::unique_ptr<Operation> make_conv2d(const OperationSpec& spec) {
  const ConvGeometry geometry = conv_geometry(spec.attr, spec.inputs.front(), spec.output);
  if (geometry.depthwise()) return make_depthwise(geometry, spec);
  return std::make_unique<DenseConv>(geometry, spec);
}

std::unique_ptr<Operation> make_linear(const OperationSpec& spec) {
  return std::make_unique<DenseConv>(linear_geometry(spec.attr, spec.inputs.front()), spec);
}

}  // namespace tri::ops
