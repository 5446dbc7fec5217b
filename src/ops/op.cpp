#include "ops/op.h"

#include <array>

#include "base/check.h"
#include "ops/op_rule.h"

namespace tri::ops {
namespace {

using Rule = Result<tensor::Shape> (*)(const Attributes&, std::span<const tensor::Shape>);

struct Entry {
  std::string_view name;
  Rule rule;
};

constexpr std::array<Entry, kOpKinds> kTable{{
#define TRI_OP(kind, name) {#name, &name##_rule},
#include "ops/op_list.inc"
#undef TRI_OP
}};

const Entry& entry(OpKind kind) {
  const auto index = static_cast<size_t>(kind);
  TRI_CHECK(index < kOpKinds, "kind = {}", index);
  return kTable[index];
}

}  // namespace

std::string_view name(OpKind kind) { return entry(kind).name; }

std::string_view name(Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return "none";
    case Activation::kRelu:
      return "relu";
    case Activation::kRelu6:
      return "relu6";
    case Activation::kSilu:
      return "silu";
    case Activation::kSigmoid:
      return "sigmoid";
  }
  TRI_CHECK(false, "activation = {}", static_cast<int>(activation));
  return {};
}

Result<tensor::Shape> infer(OpKind kind, const Attributes& attributes,
                            std::span<const tensor::Shape> inputs) {
  for (const tensor::Shape& input : inputs) TRI_TRY(check_shape(input));
  Result<tensor::Shape> shape = entry(kind).rule(attributes, inputs);
  if (shape) TRI_TRY(check_shape(*shape));
  return shape;
}

}  // namespace tri::ops
