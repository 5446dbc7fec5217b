#include <fmt/format.h>

#include "ops/op_rule.h"

namespace tri::ops {

Result<tensor::Shape> softmax_cross_entropy_rule(const Attributes& attributes,
                                                 std::span<const tensor::Shape> inputs) {
  TRI_TRY(check_arity(inputs, 1));
  const float smoothing = attributes.label_smoothing;
  if (!(smoothing >= 0.0f && smoothing <= 1.0f))
    return refuse(fmt::format("the label smoothing is {}; it must be 0..1", smoothing));
  if (inputs[0].pixels() != 1)
    return refuse(fmt::format("the logits {} are an image; they must be {}", inputs[0].text(),
                              tensor::Shape{1, 1, inputs[0].c}.text()));
  return tensor::Shape{1, 1, 1};
}

}  // namespace tri::ops
