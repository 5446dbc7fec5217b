#include "ops/op_rule.h"

namespace tri::ops {

Result<tensor::Shape> dropout_rule(const Attributes& attributes,
                                   std::span<const tensor::Shape> inputs) {
  TRI_TRY(check_arity(inputs, 1));
  TRI_TRY(check_rate(attributes.rate));
  return inputs[0];
}

}  // namespace tri::ops
