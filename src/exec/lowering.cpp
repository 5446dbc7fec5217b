#include "exec/lowering.h"

namespace tri::exec {
namespace {

using ops::Activation;
using ops::OpKind;

class Lowering {
 public:
  Lowering(const nn::Model& model, const LoweringOptions& options)
      : model_(model), options_(options), readers_(model.nodes.size(), 0) {
    out_.model = &model;
    for (const nn::Node& node : model.nodes)
      for (const int input : node.inputs) ++readers_[static_cast<size_t>(input)];
    ++readers_[static_cast<size_t>(model.output)];
  }

  Lowered run() {
    for (size_t i = 0; i < model_.nodes.size(); ++i) {
      lower_node(static_cast<int>(i));
      if (options_.store) store_transformed(static_cast<int>(i));
    }
    out_.logits = value(model_.output);
    return std::move(out_);
  }

 private:
  const nn::Node& node(int index) const { return model_.nodes[static_cast<size_t>(index)]; }
  int value(int index) const { return value_[static_cast<size_t>(index)]; }
  LoweredTensor& tensor(int index) { return out_.tensors[static_cast<size_t>(index)]; }

  // Nobody but the next node reads the tensor of node `index`, by whatever name.
  bool only_reader(int index) const {
    for (; readers_[static_cast<size_t>(index)] == 1; index = node(index).inputs[0])
      if (!passes_through(node(index))) return true;
    return false;
  }
  // The input is stored by the caller: nothing is computed when it is there.
  bool may_grow(int index) const { return value(index) != 0 && only_reader(index); }
  bool passes_through(const nn::Node& n) const {
    const bool drops = n.kind == OpKind::kDropout || n.kind == OpKind::kStochasticDepth;
    return n.kind == OpKind::kFlatten || (drops && (!options_.training || n.attr.rate == 0.0f));
  }

  int add_tensor(std::string name, const Shape& shape, int layer, int producer) {
    LoweredTensor made;
    made.name = std::move(name);
    made.shape = shape;
    made.layer = layer;
    made.producer = producer;
    out_.tensors.push_back(std::move(made));
    return static_cast<int>(out_.tensors.size()) - 1;
  }

  int add_op(OpKind kind, int node_index, std::string name, std::vector<int> inputs,
             const Shape& shape, int layer) {
    const auto op = static_cast<int>(out_.ops.size());
    const int output = add_tensor(name, shape, layer, op);
    out_.ops.push_back({kind, node_index, std::move(name), std::move(inputs), output});
    return output;
  }

  // A tensor with the value of `source` and no transform left to do.
  int store(int source) {
    const LoweredTensor& from = tensor(source);
    const Shape shape = from.shape;
    const int layer = from.layer;
    return add_op(OpKind::kAdd, -1, from.name + "/stored", {source}, shape, layer);
  }

  // The tensor of node `index` if its transform may still grow, otherwise a stored copy of it.
  int open_value(int index, bool grows) { return grows ? value(index) : store(value(index)); }

  static bool plain(const LoweredTensor& t) {
    return t.norm < 0 && t.activation == Activation::kNone && t.depth < 0 && t.scaled < 0;
  }

  void store_transformed(int index) {
    int& held = value_[static_cast<size_t>(index)];
    if (held >= 0 && !plain(tensor(held)) && settled(index)) held = store(held);
  }

  // No node that could still join the transform reads this one.
  bool settled(int index) const {
    for (const nn::Node& reader : model_.nodes)
      for (const int input : reader.inputs)
        if (input == index &&
            (reader.kind == OpKind::kActivation || reader.kind == OpKind::kBatchNorm ||
             reader.kind == OpKind::kChannelScale || reader.kind == OpKind::kStochasticDepth))
          return false;
    return true;
  }

  void lower_node(int index) {
    const nn::Node& n = node(index);
    value_.push_back(-1);
    const auto set = [&](int held) { value_.back() = held; };
    const int x = n.inputs.empty() ? -1 : n.inputs[0];
    if (passes_through(n)) {
      set(value(x));
      return;
    }
    switch (n.kind) {
      case OpKind::kInput:
        set(add_tensor(n.name, n.shape, -1, -1));
        return;
      case OpKind::kBatchNorm: {
        const int held = open_value(x, may_grow(x) && plain(tensor(value(x))));
        tensor(held).norm = static_cast<int>(out_.norms.size());
        out_.norms.push_back({index, held});
        set(held);
        return;
      }
      case OpKind::kActivation: {
        const LoweredTensor& t = tensor(value(x));
        const bool may =
            may_grow(x) && t.activation == Activation::kNone && t.depth < 0 && t.scaled < 0;
        const int held = open_value(x, may);
        tensor(held).activation = n.attr.activation;
        set(held);
        return;
      }
      case OpKind::kStochasticDepth: {
        const LoweredTensor& t = tensor(value(x));
        const int held = open_value(x, may_grow(x) && t.depth < 0 && t.scaled < 0);
        tensor(held).depth = static_cast<int>(out_.depths.size());
        out_.depths.push_back({index, n.attr.rate});
        set(held);
        return;
      }
      case OpKind::kChannelScale: {
        const LoweredTensor& t = tensor(value(x));
        const int held = open_value(x, value(x) != 0 && t.depth < 0 && t.scaled < 0);
        const auto factor = static_cast<int>(out_.factors.size());
        out_.factors.push_back({value(n.inputs[1]), n.shape.c});
        const int made = add_op(OpKind::kChannelScale, index, n.name, {held, value(n.inputs[1])},
                                n.shape, tensor(held).layer);
        tensor(made).scaled = held;
        tensor(made).factor = factor;
        set(made);
        return;
      }
      default:
        break;
    }
    std::vector<int> inputs;
    for (const int input : n.inputs) inputs.push_back(value(input));
    // Behind a flatten the image keeps its shape; whatever treats its elements alike does not mind.
    const bool alike = n.kind == OpKind::kAdd || n.kind == OpKind::kDropout;
    const Shape shape = alike ? tensor(inputs.front()).shape : n.shape;
    set(add_op(n.kind, index, n.name, std::move(inputs), shape, n.layer));
  }

  const nn::Model& model_;
  LoweringOptions options_;
  std::vector<int> readers_;  // by node
  std::vector<int> value_;    // tensor of each node
  Lowered out_;
};

}  // namespace

Lowered lower(const nn::Model& model, const LoweringOptions& options) {
  return Lowering(model, options).run();
}

}  // namespace tri::exec
