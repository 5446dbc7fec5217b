#include "ops/op_rule.h"

namespace tri::ops {

Result<tensor::Shape> avg_pool_rule(const Attributes& attributes,
                                    std::span<const tensor::Shape> inputs) {
  TRI_TRY(check_arity(inputs, 1));
  return slide_pool(attributes, inputs[0]);
}

}  // namespace tri::ops
