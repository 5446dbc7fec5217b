#include "ops/global_avg_pool/global_pool.h"
#include "ops/operation.h"

namespace tri::ops {
namespace {

class GlobalAvgPool final : public Operation {
 public:
  explicit GlobalAvgPool(const OperationSpec& spec) : plan_(spec.inputs.front(), spec.samples) {
    needs_.tells_data = true;
    needs_.forward_scratch = needs_.backward_scratch = spec.threads * plan_.worker_bytes();
  }
  StoreCounts forward(const PassArguments& pass) noexcept override {
    return global_pool_forward(plan_, pass.inputs[0], pass.output, pass.scratch, *pass.pool);
  }
  StoreCounts backward_data(const PassArguments& pass) noexcept override {
    return global_pool_backward(plan_, pass.output_grad, pass.input_grads[0], pass.scratch,
                                *pass.pool);
  }

 private:
  GlobalPoolPlan plan_;
};

}  // namespace

std::unique_ptr<Operation> make_global_avg_pool(const OperationSpec& spec) {
  return std::make_unique<GlobalAvgPool>(spec);
}

}  // namespace tri::ops
