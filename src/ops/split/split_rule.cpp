#include <fmt/format.h>

#include <utility>

#include "ops/op_rule.h"

namespace tri::ops {

Result<tensor::Shape> split_rule(const Attributes& attributes,
                                 std::span<const tensor::Shape> inputs) {
  TRI_TRY(check_arity(inputs, 1));
  const tensor::Shape& input = inputs[0];
  const auto [begin, count] = std::pair(attributes.begin, attributes.count);
  if (begin < 0 || count < 1 || begin > input.c || count > input.c - begin)
    return refuse(fmt::format("{} channels from channel {} on are not within the input {}", count,
                              begin, input.text()));
  return tensor::Shape{input.h, input.w, count};
}

}  // namespace tri::ops
