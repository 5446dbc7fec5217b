#include "ops/operation.h"

#include <array>

#include "base/check.h"

namespace tri::ops {

#define TRI_OP(kind, name)
#define TRI_KERNEL_OP(kind, name) \
  std::unique_ptr<Operation> make_##name(const OperationSpec& spec);  // in the op's folder
#include "ops/op_list.inc"
#undef TRI_KERNEL_OP
#undef TRI_OP

namespace {

using Maker = std::unique_ptr<Operation> (*)(const OperationSpec&);

constexpr std::array<Maker, kOpKinds> kMakers{
#define TRI_OP(kind, name) nullptr,
#define TRI_KERNEL_OP(kind, name) &make_##name,
#include "ops/op_list.inc"
#undef TRI_KERNEL_OP
#undef TRI_OP
};

}  // namespace

StoreCounts Operation::backward_weights(const PassArguments&) noexcept { return {}; }

bool has_kernels(OpKind kind) { return kMakers[static_cast<size_t>(kind)] != nullptr; }

std::unique_ptr<Operation> make_operation(const OperationSpec& spec) {
  TRI_CHECK(has_kernels(spec.kind), "kind = {}", name(spec.kind));
  return kMakers[static_cast<size_t>(spec.kind)](spec);
}

}  // namespace tri::ops
