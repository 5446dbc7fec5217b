#include "ops/op_rule.h"

namespace tri::ops {

Result<tensor::Shape> global_avg_pool_rule(const Attributes&,
                                           std::span<const tensor::Shape> inputs) {
  TRI_TRY(check_arity(inputs, 1));
  return tensor::Shape{1, 1, inputs[0].c};
}

}  // namespace tri::ops
