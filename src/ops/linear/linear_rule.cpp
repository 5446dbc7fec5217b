#include <fmt/format.h>

#include "ops/op_rule.h"

namespace tri::ops {

Result<tensor::Shape> linear_rule(const Attributes& attributes,
                                  std::span<const tensor::Shape> inputs) {
  TRI_TRY(check_arity(inputs, 1));
  TRI_TRY(check_extent("the number of outputs", attributes.out_channels));
  const tensor::Shape& input = inputs[0];
  const tensor::Shape output{1, 1, attributes.out_channels};
  if (input.pixels() != 1)
    return refuse(
        fmt::format("the input {} is an image, and {} comes from a vector 1x1xC; flatten "
                    "or pool it first",
                    input.text(), output.text()));
  return output;
}

}  // namespace tri::ops
