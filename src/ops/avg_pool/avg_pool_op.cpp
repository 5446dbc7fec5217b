#include "ops/avg_pool/avg_pool.h"
#include "ops/operation.h"

namespace tri::ops {
namespace {

class AvgPool final : public Operation {
 public:
  explicit AvgPool(const OperationSpec& spec)
      : forward_(window_of(spec.attr, spec.inputs.front(), spec.output),
                 spec.attr.count_include_pad, Pass::kForward, spec.samples),
        backward_(forward_.window.window, spec.attr.count_include_pad, Pass::kBackward,
                  spec.samples) {
    needs_.forward_scratch = spec.threads * forward_.worker_bytes();
    needs_.tells_forward = needs_.tells_data = true;
    needs_.backward_scratch = spec.threads * backward_.worker_bytes();
  }
  StoreCounts forward(const PassArguments& pass) noexcept override {
    return avg_pool_forward(forward_, pass.inputs[0], pass.output, pass.scratch, *pass.pool);
  }
  StoreCounts backward_data(const PassArguments& pass) noexcept override {
    return avg_pool_backward(backward_, pass.output_grad, pass.input_grads[0], pass.scratch,
                             *pass.pool);
  }

 private:
  AvgPoolPlan forward_, backward_;
};

}  // namespace

std::unique_ptr<Operation> make_avg_pool(const OperationSpec& spec) {
  return std::make_unique<AvgPool>(spec);
}

}  // namespace tri::ops
