#include <fmt/format.h>

#include "ops/op_rule.h"

namespace tri::ops {

Result<tensor::Shape> batch_norm_rule(const Attributes& attributes,
                                      std::span<const tensor::Shape> inputs) {
  TRI_TRY(check_arity(inputs, 1));
  if (!(attributes.eps > 0.0f))
    return refuse(fmt::format("eps is {}; it must be above 0", attributes.eps));
  if (!(attributes.momentum >= 0.0f && attributes.momentum <= 1.0f))
    return refuse(fmt::format("the momentum is {}; it must be 0..1", attributes.momentum));
  return inputs[0];
}

}  // namespace tri::ops
