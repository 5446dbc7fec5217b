#include "ops/max_pool/max_pool.h"
#include "ops/operation.h"

namespace tri::ops {
namespace {

class MaxPool final : public Operation {
 public:
  explicit MaxPool(const OperationSpec& spec)
      : forward_(window_of(spec.attr, spec.inputs.front(), spec.output), Pass::kForward,
                 spec.samples),
        backward_(forward_.window.window, Pass::kBackward, spec.samples) {
    needs_.saved_bytes = forward_.argmax_bytes();
    needs_.forward_scratch = spec.threads * forward_.worker_bytes();
    needs_.tells_forward = needs_.tells_data = true;
    needs_.backward_scratch = spec.threads * backward_.worker_bytes();
  }
  StoreCounts forward(const PassArguments& pass) noexcept override {
    auto* argmax = reinterpret_cast<uint8_t*>(pass.saved);
    if (pass.again)
      return max_pool_again(forward_, pass.inputs[0], pass.output, argmax, *pass.pool);
    return max_pool_forward(forward_, pass.inputs[0], pass.output, argmax, pass.scratch,
                            *pass.pool);
  }
  StoreCounts backward_data(const PassArguments& pass) noexcept override {
    return max_pool_backward(backward_, pass.output_grad,
                             reinterpret_cast<const uint8_t*>(pass.saved), pass.input_grads[0],
                             pass.scratch, *pass.pool);
  }

 private:
  MaxPoolPlan forward_, backward_;
};

}  // namespace

std::unique_ptr<Operation> make_max_pool(const OperationSpec& spec) {
  return std::make_unique<MaxPool>(spec);
}

}  // namespace tri::ops
