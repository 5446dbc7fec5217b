#include "ops/conv2d/depthwise_op.h"

#include <algorithm>

#include "ops/conv2d/bias_grad.h"
#include "ops/conv2d/depthwise.h"
#include "ops/conv2d/depthwise_grad.h"

namespace tri::ops {
namespace {

class Depthwise final : public Operation {
 public:
  Depthwise(const ConvGeometry& geometry, const OperationSpec& spec)
      : forward_(geometry, Direction::kForward, spec.samples),
        backward_(geometry, Direction::kBackwardData, spec.samples),
        grad_(geometry, spec.samples, spec.ghost, costly_slope(spec.activation)),
        samples_(spec.samples) {
    const auto bytes = [&spec](const auto& plan) {
      return plan.shared_bytes() + spec.threads * plan.worker_bytes();
    };
    needs_.forward_scratch = bytes(forward_);
    needs_.backward_scratch = bytes(backward_);
    data_offset_ = bytes(grad_);
    const KernelChoice joined{Kernel::kJoined, Kernel::kDirect};
    choose(spec.kernels, {}, grad_.joins_data() ? joined : KernelChoice{});
    needs_.data_with_weights = needs_.kernels.backward == Kernel::kJoined;
    needs_.weights_scratch = std::max(data_offset_ + backward_.shared_bytes(),
                                      spec.attr.bias ? spec.threads * bias_grad_worker_bytes() : 0);
    needs_.tells_forward = needs_.tells_data = needs_.passes_data = true;
    needs_.gradient_parts = grad_.parts();
    needs_.macs = geometry.useful_macs();
  }
  StoreCounts forward(const PassArguments& pass) noexcept override {
    return depthwise_forward(forward_, pass.inputs[0], pass.weights, pass.bias, pass.output,
                             pass.scratch, *pass.pool);
  }
  StoreCounts backward_data(const PassArguments& pass) noexcept override {
    return depthwise_backward_data(backward_, pass.output_grad, pass.weights, pass.input_grads[0],
                                   pass.scratch, *pass.pool);
  }
  StoreCounts backward_weights(const PassArguments& pass) noexcept override {
    const Shape& out = grad_.geometry.out;
    if (pass.bias_grad != nullptr)
      bias_grad(samples_, out.pixels(), out.c, pass.output_grad, pass.bias_grad, pass.scratch,
                *pass.pool);
    const bool joined = needs_.data_with_weights && !pass.input_grads.empty() &&
                        pass.input_grads[0].data != nullptr;
    DepthwiseData data{};
    if (joined)
      data = {wide_weights(grad_.geometry, pass.weights, pass.scratch + data_offset_, *pass.pool),
              pass.input_grads[0]};
    return depthwise_backward_weights(grad_, pass.inputs[0], pass.output_grad, pass.initial,
                                      *pass.consumer, joined ? &data : nullptr, pass.scratch,
                                      *pass.pool);
  }

 private:
  DepthwisePlan forward_, backward_;
  DepthwiseGradPlan grad_;
  int64_t samples_;
  size_t data_offset_ = 0;  // of the weights that dX reads, in scratch
};

}  // namespace

std::unique_ptr<Operation> make_depthwise(const ConvGeometry& geometry, const OperationSpec& spec) {
  return std::make_unique<Depthwise>(geometry, spec);
}

}  // namespace tri::ops
