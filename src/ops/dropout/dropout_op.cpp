#include "ops/dropout/dropout.h"
#include "ops/operation.h"

namespace tri::ops {
namespace {

class Dropout final : public Operation {
 public:
  explicit Dropout(const OperationSpec& spec)
      : tiles_(spec.samples, spec.output), layer_(spec.layer), rate_(spec.attr.rate) {
    needs_.forward_scratch = needs_.backward_scratch = spec.threads * dropout_worker_bytes(tiles_);
  }
  StoreCounts forward(const PassArguments& pass) noexcept override {
    return dropout_forward(tiles_, mask(pass), pass.inputs[0], pass.output, pass.scratch,
                           *pass.pool);
  }
  StoreCounts backward_data(const PassArguments& pass) noexcept override {
    return dropout_backward(tiles_, mask(pass), pass.output_grad, pass.input_grads[0], pass.scratch,
                            *pass.pool);
  }

 private:
  DropoutMask mask(const PassArguments& pass) const {
    return {pass.seed, pass.samples, layer_, rate_};
  }

  RowTiles tiles_;
  uint64_t layer_;
  float rate_;
};

}  // namespace

std::unique_ptr<Operation> make_dropout(const OperationSpec& spec) {
  return std::make_unique<Dropout>(spec);
}

}  // namespace tri::ops
