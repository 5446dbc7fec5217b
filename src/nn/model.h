#pragma once
// Room: nn. A network as data: nodes in an order in which they can be computed, and the parameters
// they use under torchvision's names. Made by tri::Graph (include/tri/graph.h), read by exec. Knows
// no batch, no bytes, no formats and no values.
#include <cstdint>
#include <string>
#include <vector>

#include "ops/op.h"
#include "tensor/shape.h"

namespace tri {
class Network;
}

namespace tri::nn {

enum class ParamRole : uint8_t {
  kConvWeight,    // (O, I / groups, KH, KW)
  kLinearWeight,  // (O, I), columns in PyTorch's order: see ops::Attributes::flattened_from
  kBias,          // (O) of conv2d or linear
  kNormWeight,    // (C) gamma
  kNormBias,      // (C) beta
};

// How a parameter's first values are drawn. Fans are already resolved into numbers.
struct Init {
  enum class Kind : uint8_t { kConstant, kUniform, kNormal };
  Kind kind = Kind::kConstant;
  double center = 0.0;  // the constant, or the mean
  double spread = 0.0;  // uniform: center +- spread; normal: the standard deviation
};

struct Parameter {
  std::string name;  // torchvision's, e.g. "layer1.0.conv1.weight"
  ParamRole role = ParamRole::kBias;
  std::vector<int64_t> dims;  // PyTorch's order: OIHW, OI or C
  Init init;

  int64_t elements() const {
    int64_t product = 1;
    for (const int64_t dim : dims) product *= dim;
    return product;
  }
};

// One operation. Batch-norm nodes keep gamma and beta in weight and bias; their running statistics
// are the buffers NAME.running_mean and NAME.running_var (PyTorch also saves an unused scalar,
// NAME.num_batches_tracked).
struct Node {
  ops::OpKind kind = ops::OpKind::kInput;
  std::string name;         // unique in the model: the module's name, e.g. "layer1.0.conv1"
  std::vector<int> inputs;  // nodes before this one
  ops::Attributes attr;
  tensor::Shape shape;  // one sample of the output
  int weight = -1;      // index into Model::parameters, or -1
  int bias = -1;
  // The weight layer (conv2d, linear) to which the node belongs, counted from 0; -1 before the
  // first. What follows a layer belongs to it; a node of several inputs to that of its first.
  int layer = -1;
};

struct Model {
  std::string name;
  std::vector<Node> nodes;            // node 0 is the input
  std::vector<Parameter> parameters;  // in torchvision's state_dict order
  int output = -1;  // the node whose 1 x 1 x classes are the logits; the loss is no node
  int layers = 0;   // weight layers; Node::layer is below it

  const tensor::Shape& input_shape() const { return nodes.front().shape; }
  int64_t classes() const { return nodes[static_cast<size_t>(output)].shape.c; }
  int64_t parameter_elements() const {
    int64_t sum = 0;
    for (const Parameter& parameter : parameters) sum += parameter.elements();
    return sum;
  }
};

// The model behind a finished graph; lives as long as any copy of the network.
const Model& model_of(const Network& network);

}  // namespace tri::nn
