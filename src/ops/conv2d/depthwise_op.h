#pragma once
// Room: ops. The depthwise convolution as an operation; conv2d makes it where the geometry says so.
#include <memory>

#include "ops/conv2d/conv_geometry.h"
#include "ops/operation.h"

namespace tri::ops {

// REQUIRES: geometry.depthwise().
std::unique_ptr<Operation> make_depthwise(const ConvGeometry& geometry, const OperationSpec& spec);

}  // namespace tri::ops
