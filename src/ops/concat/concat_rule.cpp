#include <fmt/format.h>

#include "ops/op_rule.h"

namespace tri::ops {

Result<tensor::Shape> concat_rule(const Attributes&, std::span<const tensor::Shape> inputs) {
  if (inputs.size() < 2)
    return refuse(fmt::format("{} inputs were given; it takes two or more", inputs.size()));
  tensor::Shape output = inputs[0];
  for (const tensor::Shape& input : inputs.subspan(1)) {
    if (input.h != output.h || input.w != output.w)
      return refuse(fmt::format("{} and {} cannot be joined; height and width must be equal",
                                inputs[0].text(), input.text()));
    output.c += input.c;
  }
  return output;
}

}  // namespace tri::ops
