#include "ops/add/add.h"
#include "ops/operation.h"

namespace tri::ops {
namespace {

class Add final : public Operation {
 public:
  explicit Add(const OperationSpec& spec) : tiles_(spec.samples, spec.output) {
    needs_.forward_scratch = needs_.backward_scratch = spec.threads * add_worker_bytes(tiles_);
  }
  StoreCounts forward(const PassArguments& pass) noexcept override {
    return add_forward(tiles_, pass.inputs, pass.output, pass.scratch, *pass.pool);
  }
  StoreCounts backward_data(const PassArguments& pass) noexcept override {
    return add_backward(tiles_, pass.output_grad, pass.input_grads, pass.lost, pass.scratch,
                        *pass.pool);
  }

 private:
  RowTiles tiles_;
};

}  // namespace

std::unique_ptr<Operation> make_add(const OperationSpec& spec) {
  return std::make_unique<Add>(spec);
}

}  // namespace tri::ops
