#include "ops/concat/channel_copy.h"
#include "ops/operation.h"

namespace tri::ops {
namespace {

class ChannelShuffle final : public Operation {
 public:
  explicit ChannelShuffle(const OperationSpec& spec)
      : tiles_(spec.samples, spec.output), groups_(spec.attr.groups) {
    needs_.forward_scratch = needs_.backward_scratch = spec.threads * copy_worker_bytes(tiles_);
  }
  StoreCounts forward(const PassArguments& pass) noexcept override {
    return copy_channels(tiles_, {0, 0, tiles_.channels, groups_}, pass.inputs[0], pass.output,
                         pass.scratch, *pass.pool);
  }
  StoreCounts backward_data(const PassArguments& pass) noexcept override {
    const ChannelCopy back{0, 0, tiles_.channels, tiles_.channels / groups_};
    return copy_channels_grad(tiles_, back, pass.output_grad, pass.input_grads[0], pass.scratch,
                              *pass.pool);
  }

 private:
  RowTiles tiles_;
  int64_t groups_;
};

}  // namespace

std::unique_ptr<Operation> make_channel_shuffle(const OperationSpec& spec) {
  return std::make_unique<ChannelShuffle>(spec);
}

}  // namespace tri::ops
