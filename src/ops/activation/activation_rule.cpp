#include "ops/op_rule.h"

namespace tri::ops {

Result<tensor::Shape> activation_rule(const Attributes& attributes,
                                      std::span<const tensor::Shape> inputs) {
  TRI_TRY(check_arity(inputs, 1));
  if (attributes.activation == Activation::kNone)
    return refuse("no activation was named; leave the layer out or name one");
  return inputs[0];
}

}  // namespace tri::ops
