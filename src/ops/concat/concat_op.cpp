#include "ops/concat/channel_copy.h"
#include "ops/operation.h"

namespace tri::ops {
namespace {

class Concat final : public Operation {
 public:
  explicit Concat(const OperationSpec& spec)
      : tiles_(spec.samples, spec.output), inputs_(spec.inputs) {
    needs_.forward_scratch = needs_.backward_scratch = spec.threads * copy_worker_bytes(tiles_);
  }
  StoreCounts forward(const PassArguments& pass) noexcept override {
    StoreCounts counts;
    int64_t to = 0;
    for (size_t i = 0; i < inputs_.size(); to += inputs_[i++].c)
      counts += copy_channels(tiles_, {0, to, inputs_[i].c}, pass.inputs[i], pass.output,
                              pass.scratch, *pass.pool);
    return counts;
  }
  StoreCounts backward_data(const PassArguments& pass) noexcept override {
    StoreCounts counts;
    int64_t from = 0;
    for (size_t i = 0; i < inputs_.size(); from += inputs_[i++].c)
      if (pass.input_grads[i].data != nullptr)
        counts += copy_channels_grad(tiles_, {from, 0, inputs_[i].c}, pass.output_grad,
                                     pass.input_grads[i], pass.scratch, *pass.pool);
    return counts;
  }

 private:
  RowTiles tiles_;
  std::vector<Shape> inputs_;
};

}  // namespace

std::unique_ptr<Operation> make_concat(const OperationSpec& spec) {
  return std::make_unique<Concat>(spec);
}

}  // namespace tri::ops
