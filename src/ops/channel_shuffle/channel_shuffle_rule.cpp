#include <fmt/format.h>

#include "ops/op_rule.h"

namespace tri::ops {

Result<tensor::Shape> channel_shuffle_rule(const Attributes& attributes,
                                           std::span<const tensor::Shape> inputs) {
  TRI_TRY(check_arity(inputs, 1));
  TRI_TRY(check_extent("the number of groups", attributes.groups));
  if (inputs[0].c % attributes.groups != 0)
    return refuse(fmt::format("{} groups do not divide the channels of the input {}",
                              attributes.groups, inputs[0].text()));
  return inputs[0];
}

}  // namespace tri::ops
