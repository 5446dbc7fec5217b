#include <fmt/format.h>

#include "ops/op_rule.h"

namespace tri::ops {

Result<tensor::Shape> conv2d_rule(const Attributes& attributes,
                                  std::span<const tensor::Shape> inputs) {
  TRI_TRY(check_arity(inputs, 1));
  TRI_TRY(check_extent("the number of output channels", attributes.out_channels));
  TRI_TRY(check_extent("the number of groups", attributes.groups));
  const tensor::Shape& input = inputs[0];
  if (input.c % attributes.groups != 0 || attributes.out_channels % attributes.groups != 0)
    return refuse(
        fmt::format("{} groups divide neither or only one of the input {} and the {} "
                    "output channels; both must be multiples of the groups",
                    attributes.groups, input.text(), attributes.out_channels));
  Result<tensor::Shape> shape = slide_window(attributes, input);
  if (shape) shape->c = attributes.out_channels;
  return shape;
}

}  // namespace tri::ops
