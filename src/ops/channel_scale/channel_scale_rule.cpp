#include <fmt/format.h>

#include "ops/op_rule.h"

namespace tri::ops {

Result<tensor::Shape> channel_scale_rule(const Attributes&, std::span<const tensor::Shape> inputs) {
  TRI_TRY(check_arity(inputs, 2));
  const tensor::Shape expected{1, 1, inputs[0].c};
  if (inputs[1] != expected)
    return refuse(fmt::format("the factors {} do not fit the input {}; they must be {}",
                              inputs[1].text(), inputs[0].text(), expected.text()));
  return inputs[0];
}

}  // namespace tri::ops
