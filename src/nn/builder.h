#pragma once
// Room: nn. Checks layers one by one and grows a Model of them; the first mistake is remembered and
// everything after it ignored. The public face is tri::Graph; here tensors are node indices.
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "nn/model.h"
#include "tri/graph.h"
#include "tri/result.h"

namespace tri::nn {

class Builder {
 public:
  // What a caller may pass in place of a node.
  static constexpr int kNothing = -1;
  static constexpr int kForeign = -2;  // a node of another graph

  Builder(std::string name, const tensor::Shape& input);

  // The new node, or kNothing after a mistake. An empty name is replaced by one made of the first
  // input's name and the operation's.
  int add(ops::OpKind kind, std::string_view name, std::span<const int> inputs,
          const ops::Attributes& attr);

  // add() for the operations with parameters, which are appended to the model.
  int add_conv(std::string_view name, int input, const ops::Attributes& attr, const InitRule& init,
               const InitRule& bias_init);
  int add_linear(std::string_view name, int input, const ops::Attributes& attr,
                 const InitRule& init, const InitRule& bias_init);
  int add_norm(std::string_view name, int input, const ops::Attributes& attr);

  // The model, once its output is known: a vector to which every node leads.
  Result<Model> finish(int output) const;

  // REQUIRES: a node of this builder.
  const tensor::Shape& shape(int index) const { return node(index).shape; }
  // False if the input itself was refused.
  bool has_input() const { return !model_.nodes.empty(); }

 private:
  Node& node(int index) { return model_.nodes[static_cast<size_t>(index)]; }
  const Node& node(int index) const { return model_.nodes[static_cast<size_t>(index)]; }
  const std::optional<tensor::Shape>& flattened(int index) const {
    return flattened_[static_cast<size_t>(index)];
  }
  int fail(std::string_view name, std::string_view message);
  std::string automatic_name(ops::OpKind kind, std::span<const int> inputs) const;
  Result<std::optional<tensor::Shape>> flattened_image(const Node& added) const;
  int add_weighted(ops::OpKind kind, ParamRole role, std::string_view name, int input,
                   const ops::Attributes& attr, const InitRule& init, const InitRule& bias_init);
  int add_parameter(const std::string& owner, std::string_view suffix, ParamRole role,
                    std::vector<int64_t> dims, const Init& init);

  Model model_;
  std::optional<Error> error_;
  std::unordered_set<std::string> names_;
  // Per node, if it is an image of several pixels, flattened: that image. Its channels are then in
  // another order than PyTorch's, which only a linear layer can undo.
  std::vector<std::optional<tensor::Shape>> flattened_;
};

}  // namespace tri::nn
