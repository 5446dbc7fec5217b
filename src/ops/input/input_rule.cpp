#include "ops/op_rule.h"

namespace tri::ops {

Result<tensor::Shape> input_rule(const Attributes& attributes,
                                 std::span<const tensor::Shape> inputs) {
  TRI_TRY(check_arity(inputs, 0));
  return attributes.input_shape;
}

}  // namespace tri::ops
