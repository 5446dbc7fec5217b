#include <fmt/format.h>

#include "ops/op_rule.h"

namespace tri::ops {

Result<tensor::Shape> add_rule(const Attributes&, std::span<const tensor::Shape> inputs) {
  TRI_TRY(check_arity(inputs, 2));
  if (inputs[0] != inputs[1])
    return refuse(fmt::format("{} and {} cannot be added; the shapes must be equal",
                              inputs[0].text(), inputs[1].text()));
  return inputs[0];
}

}  // namespace tri::ops
