#include <algorithm>
#include <optional>
#include <variant>

#include "ops/conv2d/bias_grad.h"
#include "ops/conv2d/depthwise_op.h"
#include "ops/conv2d/gather_conv.h"
#include "ops/conv2d/pointwise.h"
#include "ops/conv2d/winograd.h"
#include "ops/operation.h"

namespace tri::ops {
namespace {

using DensePlan = std::variant<GatherPlan, WinogradPlan>;

KernelChoice dense_choice(const ConvGeometry& geometry) {
  if (suits_winograd(geometry)) return {Kernel::kWinograd, Kernel::kDirect};
  if (can_winograd(geometry)) return {Kernel::kDirect, Kernel::kWinograd};
  return {};
}

KernelChoice backward_choice(const ConvGeometry& geometry) {
  if (is_pointwise(geometry)) return {Kernel::kJoined, Kernel::kDirect};
  return dense_choice(geometry);
}

DensePlan dense_plan(const ConvGeometry& geometry, Direction direction, int64_t samples,
                     Kernel kernel) {
  if (kernel == Kernel::kWinograd) return WinogradPlan(geometry, direction, samples);
  return GatherPlan(geometry, direction, samples);
}

size_t scratch_of(const DensePlan& plan, size_t threads) {
  return std::visit([threads](const auto& p) { return p.scratch_bytes(threads); }, plan);
}

class DenseConv final : public Operation {
 public:
  DenseConv(const ConvGeometry& geometry, const OperationSpec& spec)
      : forward_(dense_plan(geometry, Direction::kForward, spec.samples,
                            dense_choice(geometry).of(spec.kernels.forward))),
        backward_(dense_plan(geometry, Direction::kBackwardData, spec.samples,
                             backward_choice(geometry).of(spec.kernels.backward))),
        outer_(geometry, spec.samples, spec.ghost) {
    choose(spec.kernels, dense_choice(geometry), backward_choice(geometry));
    needs_.forward_scratch = scratch_of(forward_, spec.threads);
    needs_.backward_scratch = scratch_of(backward_, spec.threads);
    if (needs_.kernels.backward == Kernel::kJoined) pointwise_.emplace(outer_);
    data_offset_ = outer_.shared_bytes() + spec.threads * outer_.worker_bytes();
    needs_.weights_scratch =
        std::max(data_offset_ + (pointwise_ ? pointwise_->shared_bytes(outer_) +
                                                  spec.threads * pointwise_->worker_bytes()
                                            : 0),
                 spec.attr.bias ? spec.threads * bias_grad_worker_bytes() : 0);
    needs_.data_with_weights = pointwise_.has_value();
    needs_.tells_forward = needs_.tells_data = true;
    needs_.reads_inputs_backward = true;
    needs_.whole_gradient = outer_.whole_gradient();
    needs_.bounded_gradient = outer_.bounded_gradient();
    needs_.gradient_parts = outer_.parts();
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
    const Shape& out = outer_.geometry.out;
    if (pass.bias_grad != nullptr)
      bias_grad(outer_.samples, out.pixels(), out.c, pass.output_grad, pass.bias_grad, pass.scratch,
                *pass.pool);
    std::optional<PointwiseData> data;
    if (pointwise_ && !pass.input_grads.empty() && pass.input_grads[0].data != nullptr)
      data.emplace(outer_, *pointwise_, pass.weights, pass.input_grads[0],
                   pass.scratch + data_offset_, *pass.pool);
    conv_backward_weights(outer_, pass.inputs[0], pass.output_grad, pass.initial, pass.partial,
                          *pass.consumer, pass.scratch, *pass.pool, data ? &*data : nullptr);
    return data ? data->total() : StoreCounts{};
  }

 private:
  DensePlan forward_, backward_;
  OuterPlan outer_;
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
