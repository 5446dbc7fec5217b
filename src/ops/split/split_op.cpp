#include "ops/concat/channel_copy.h"
#include "ops/operation.h"

namespace tri::ops {
namespace {

// A split writes its gradient into some channels of its input's: exec clears those that no other
// split will write.
class Split final : public Operation {
 public:
  explicit Split(const OperationSpec& spec)
      : tiles_(spec.samples, spec.inputs.front()),
        begin_(spec.attr.begin),
        count_(spec.attr.count) {
    needs_.forward_scratch = needs_.backward_scratch = spec.threads * copy_worker_bytes(tiles_);
  }
  StoreCounts forward(const PassArguments& pass) noexcept override {
    return copy_channels(tiles_, {begin_, 0, count_}, pass.inputs[0], pass.output, pass.scratch,
                         *pass.pool);
  }
  StoreCounts backward_data(const PassArguments& pass) noexcept override {
    return copy_channels_grad(tiles_, {0, begin_, count_}, pass.output_grad, pass.input_grads[0],
                              pass.scratch, *pass.pool);
  }

 private:
  RowTiles tiles_;
  int64_t begin_, count_;
};

}  // namespace

std::unique_ptr<Operation> make_split(const OperationSpec& spec) {
  return std::make_unique<Split>(spec);
}

}  // namespace tri::ops
