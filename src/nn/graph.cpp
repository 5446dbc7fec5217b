// The public builder (include/tri/graph.h) over nn::Model.
#include "tri/graph.h"

#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <unordered_set>

#include "nn/model.h"

namespace tri {
namespace {

using ops::Attributes;
using ops::OpKind;
using tensor::Shape;

// Handles carry the graph's number, not its address: addresses are used again.
uint64_t next_graph_number() {
  static std::atomic<uint64_t> number{0};
  return ++number;
}

nn::Init resolve(const InitRule& rule, int64_t fan_in, int64_t fan_out) {
  using Kind = nn::Init::Kind;
  const auto in = static_cast<double>(fan_in);
  const auto out = static_cast<double>(fan_out);
  switch (rule.kind) {
    case InitRule::Kind::kPytorch:
      return {Kind::kUniform, 0.0, 1.0 / std::sqrt(in)};
    case InitRule::Kind::kConstant:
      return {Kind::kConstant, rule.value, 0.0};
    case InitRule::Kind::kUniform:
      return {Kind::kUniform, 0.0, rule.value};
    case InitRule::Kind::kNormal:
      return {Kind::kNormal, 0.0, rule.value};
    case InitRule::Kind::kKaimingNormal:
      return {Kind::kNormal, 0.0, std::sqrt(2.0 / out)};
    case InitRule::Kind::kKaimingUniform:
      return {Kind::kUniform, 0.0, std::sqrt(6.0 / in)};
  }
  return {};
}

Attributes window(Extent kernel, Extent stride, Extent padding) {
  Attributes attr;
  attr.kernel_h = kernel.h;
  attr.kernel_w = kernel.w;
  attr.stride_h = stride.h;
  attr.stride_w = stride.w;
  attr.padding_h = padding.h;
  attr.padding_w = padding.w;
  return attr;
}

Attributes pool(const PoolOptions& options) {
  Attributes attr =
      window(options.kernel, options.stride.value_or(options.kernel), options.padding);
  attr.ceil_mode = options.ceil_mode;
  attr.count_include_pad = options.count_include_pad;
  return attr;
}

Attributes activation(ops::Activation kind) {
  Attributes attr;
  attr.activation = kind;
  return attr;
}

Attributes drop(float rate) {
  Attributes attr;
  attr.rate = rate;
  return attr;
}

}  // namespace

// All checks are in add(): a layer is either whole in the model or remembered as the error.
struct Graph::State {
  nn::Model model;
  uint64_t number = next_graph_number();
  std::optional<Error> error;
  std::unordered_set<std::string> names;
  // Per node, if it is an image of several pixels, flattened: that image. Its channels are then in
  // another order than PyTorch's, which only a linear layer can undo.
  std::vector<std::optional<Shape>> flattened;

  bool owns(Tensor x) const { return x.graph_ == number && x.node_ >= 0; }
  nn::Node& node(int index) { return model.nodes[static_cast<size_t>(index)]; }
  const nn::Node& node(int index) const { return model.nodes[static_cast<size_t>(index)]; }

  Tensor fail(std::string_view name, std::string_view message) {
    if (!error) error = Error{ErrorCode::kInvalid, fmt::format("{}: {}", name, message)};
    return {};
  }

  std::string automatic_name(OpKind kind, std::span<const Tensor> inputs) const {
    std::string name(ops::name(kind));
    if (!inputs.empty() && owns(inputs[0]))
      name = fmt::format("{}/{}", node(inputs[0].node_).name, name);
    if (names.contains(name)) name += fmt::format("#{}", model.nodes.size());
    return name;
  }

  Tensor add(OpKind kind, std::string_view given_name, std::span<const Tensor> inputs,
             const Attributes& attr) {
    if (error) return {};
    const std::string name =
        given_name.empty() ? automatic_name(kind, inputs) : std::string(given_name);
    if (names.contains(name)) return fail(name, "the name is used twice; give each layer its own");

    nn::Node added{.kind = kind, .name = name, .inputs = {}, .attr = attr, .shape = {}};
    std::vector<Shape> shapes;
    for (const Tensor input : inputs) {
      if (input.node_ < 0) return fail(name, "an input is an empty tensor; pass a layer's output");
      if (!owns(input)) return fail(name, "an input is a tensor of another graph");
      added.inputs.push_back(input.node_);
      shapes.push_back(node(input.node_).shape);
    }
    const Result<Shape> shape = ops::infer(kind, attr, shapes);
    if (!shape) return fail(name, shape.error().message);
    added.shape = *shape;

    const Result<std::optional<Shape>> image = flattened_image(added);
    if (!image) return fail(name, image.error().message);
    if (kind == OpKind::kLinear) {
      added.attr.flattened_from =
          flattened[static_cast<size_t>(added.inputs[0])].value_or(shapes[0]);
    }
    const bool weighted = kind == OpKind::kConv2d || kind == OpKind::kLinear;
    if (weighted)
      added.layer = model.layers++;
    else if (!inputs.empty())
      added.layer = node(added.inputs[0]).layer;

    names.insert(name);
    flattened.push_back(*image);
    model.nodes.push_back(std::move(added));
    Tensor handle;
    handle.graph_ = number;
    handle.node_ = static_cast<int>(model.nodes.size()) - 1;
    return handle;
  }

  Tensor add(OpKind kind, std::string_view name, Tensor x, const Attributes& attr = {}) {
    return add(kind, name, std::span(&x, 1), attr);
  }

  // The entry of `flattened` for a node about to be added.
  Result<std::optional<Shape>> flattened_image(const nn::Node& added) const {
    if (added.kind == OpKind::kLinear || added.inputs.empty()) return std::optional<Shape>();
    const auto image_of = [&](int input) { return flattened[static_cast<size_t>(input)]; };
    const std::optional<Shape> first = image_of(added.inputs[0]);
    if (added.kind == OpKind::kFlatten && !first) {
      const Shape& shape = node(added.inputs[0]).shape;
      return shape.pixels() == 1 ? std::nullopt : std::optional(shape);
    }
    const bool element_by_element = added.kind == OpKind::kActivation ||
                                    added.kind == OpKind::kDropout ||
                                    added.kind == OpKind::kStochasticDepth ||
                                    added.kind == OpKind::kAdd || added.kind == OpKind::kFlatten;
    for (const int input : added.inputs) {
      const std::optional<Shape> image = image_of(input);
      if (element_by_element ? image == first : !image) continue;
      return unexpected(ErrorCode::kInvalid,
                        fmt::format("its input {} is the flattened image {}, and behind flatten "
                                    "channels are not in PyTorch's order; use flatten right "
                                    "before linear only",
                                    node(input).shape.text(), image.value_or(*first).text()));
    }
    return first;
  }

  // Appends a parameter of the newest node. REQUIRES: `owner` was just added, or is empty.
  int parameter(Tensor owner, std::string_view suffix, nn::ParamRole role,
                std::vector<int64_t> dims, nn::Init init) {
    if (owner.node_ < 0) return -1;
    int64_t elements = 1;
    for (const int64_t dim : dims) {
      if (elements > ops::kMaxElements / dim) {
        fail(node(owner.node_).name, fmt::format("{} would have more than {} elements: {}", suffix,
                                                 ops::kMaxElements, fmt::join(dims, "x")));
        return -1;
      }
      elements *= dim;
    }
    model.parameters.push_back(
        {fmt::format("{}.{}", node(owner.node_).name, suffix), role, std::move(dims), init});
    return static_cast<int>(model.parameters.size()) - 1;
  }

  // Weight and, if asked for, bias of a conv2d or linear node.
  Tensor weigh(Tensor x, nn::ParamRole role, std::vector<int64_t> dims, bool bias,
               const InitRule& init, const InitRule& bias_init) {
    if (x.node_ < 0) return x;
    int64_t window = 1;
    for (size_t i = 2; i < dims.size(); ++i) window *= dims[i];
    const int64_t fan_in = dims[1] * window, fan_out = dims[0] * window;
    const int64_t out = dims[0];
    node(x.node_).weight =
        parameter(x, "weight", role, std::move(dims), resolve(init, fan_in, fan_out));
    if (bias)
      node(x.node_).bias =
          parameter(x, "bias", nn::ParamRole::kBias, {out}, resolve(bias_init, fan_in, fan_out));
    return x;
  }
};

Graph::Graph(std::string name, ImageSize input) : state_(std::make_unique<State>()) {
  state_->model.name = std::move(name);
  Attributes attr;
  attr.input_shape = {input.height, input.width, input.channels};
  state_->add(OpKind::kInput, "input", std::span<const Tensor>(), attr);
}

Graph::~Graph() = default;

Tensor Graph::input() const {
  Tensor handle;
  if (state_->model.nodes.empty()) return handle;
  handle.graph_ = state_->number;
  handle.node_ = 0;
  return handle;
}

Tensor Graph::conv(Tensor x, std::string_view name, const ConvOptions& options) {
  Attributes attr = window(options.kernel, options.stride, options.padding);
  attr.out_channels = options.out;
  attr.groups = options.groups;
  attr.bias = options.bias;
  const Tensor y = state_->add(OpKind::kConv2d, name, x, attr);
  if (y.node_ < 0) return y;
  return state_->weigh(
      y, nn::ParamRole::kConvWeight,
      {options.out, size(x).channels / options.groups, options.kernel.h, options.kernel.w},
      options.bias, options.init, options.bias_init);
}

Tensor Graph::linear(Tensor x, std::string_view name, const LinearOptions& options) {
  Attributes attr;
  attr.out_channels = options.out;
  attr.bias = options.bias;
  const Tensor y = state_->add(OpKind::kLinear, name, x, attr);
  if (y.node_ < 0) return y;
  return state_->weigh(y, nn::ParamRole::kLinearWeight, {options.out, size(x).channels},
                       options.bias, options.init, options.bias_init);
}

Tensor Graph::batch_norm(Tensor x, std::string_view name, const NormOptions& options) {
  Attributes attr;
  attr.eps = options.eps;
  attr.momentum = options.momentum;
  const Tensor y = state_->add(OpKind::kBatchNorm, name, x, attr);
  if (y.node_ < 0) return y;
  const int64_t channels = size(y).channels;
  using Kind = nn::Init::Kind;
  state_->node(y.node_).weight = state_->parameter(y, "weight", nn::ParamRole::kNormWeight,
                                                   {channels}, {Kind::kConstant, 1.0, 0.0});
  state_->node(y.node_).bias = state_->parameter(y, "bias", nn::ParamRole::kNormBias, {channels},
                                                 {Kind::kConstant, 0.0, 0.0});
  return y;
}

Tensor Graph::relu(Tensor x, std::string_view name) {
  return state_->add(OpKind::kActivation, name, x, activation(ops::Activation::kRelu));
}

Tensor Graph::relu6(Tensor x, std::string_view name) {
  return state_->add(OpKind::kActivation, name, x, activation(ops::Activation::kRelu6));
}

Tensor Graph::silu(Tensor x, std::string_view name) {
  return state_->add(OpKind::kActivation, name, x, activation(ops::Activation::kSilu));
}

Tensor Graph::sigmoid(Tensor x, std::string_view name) {
  return state_->add(OpKind::kActivation, name, x, activation(ops::Activation::kSigmoid));
}

Tensor Graph::max_pool(Tensor x, const PoolOptions& options, std::string_view name) {
  return state_->add(OpKind::kMaxPool, name, x, pool(options));
}

Tensor Graph::avg_pool(Tensor x, const PoolOptions& options, std::string_view name) {
  return state_->add(OpKind::kAvgPool, name, x, pool(options));
}

Tensor Graph::global_avg_pool(Tensor x, std::string_view name) {
  return state_->add(OpKind::kGlobalAvgPool, name, x);
}

Tensor Graph::add(Tensor main, Tensor shortcut, std::string_view name) {
  const Tensor inputs[] = {main, shortcut};
  return state_->add(OpKind::kAdd, name, inputs, {});
}

Tensor Graph::concat(std::span<const Tensor> parts, std::string_view name) {
  return state_->add(OpKind::kConcat, name, parts, {});
}

Tensor Graph::concat(std::initializer_list<Tensor> parts, std::string_view name) {
  return concat(std::span(parts.begin(), parts.size()), name);
}

Tensor Graph::split(Tensor x, int64_t first_channel, int64_t channels, std::string_view name) {
  Attributes attr;
  attr.begin = first_channel;
  attr.count = channels;
  return state_->add(OpKind::kSplit, name, x, attr);
}

Tensor Graph::channel_shuffle(Tensor x, int64_t groups, std::string_view name) {
  Attributes attr;
  attr.groups = groups;
  return state_->add(OpKind::kChannelShuffle, name, x, attr);
}

Tensor Graph::scale(Tensor x, Tensor factors, std::string_view name) {
  const Tensor inputs[] = {x, factors};
  return state_->add(OpKind::kChannelScale, name, inputs, {});
}

Tensor Graph::dropout(Tensor x, float rate, std::string_view name) {
  return rate == 0.0f ? x : state_->add(OpKind::kDropout, name, x, drop(rate));
}

Tensor Graph::stochastic_depth(Tensor x, float rate, std::string_view name) {
  return rate == 0.0f ? x : state_->add(OpKind::kStochasticDepth, name, x, drop(rate));
}

Tensor Graph::flatten(Tensor x, std::string_view name) {
  return state_->add(OpKind::kFlatten, name, x);
}

ImageSize Graph::size(Tensor x) const {
  if (!state_->owns(x)) return {};
  const Shape& shape = state_->node(x.node_).shape;
  return {shape.h, shape.w, shape.c};
}

Result<Network> Graph::finish(Tensor logits) const {
  const auto refuse = [&](std::string_view layer, std::string_view message) {
    return unexpected(ErrorCode::kInvalid,
                      fmt::format("{}: {}: {}", state_->model.name, layer, message));
  };
  if (state_->error)
    return unexpected(ErrorCode::kInvalid,
                      fmt::format("{}: {}", state_->model.name, state_->error->message));
  if (!state_->owns(logits)) return refuse("finish", "the output is not a tensor of this graph");

  const nn::Node& output = state_->node(logits.node_);
  if (output.shape.pixels() != 1 || state_->flattened[static_cast<size_t>(logits.node_)])
    return refuse(
        output.name,
        fmt::format(
            "the output is the image {}; it must be 1x1xCLASSES (HWC), as from a linear layer or a "
            "global pool",
            state_->flattened[static_cast<size_t>(logits.node_)].value_or(output.shape).text()));
  if (state_->model.parameters.empty())
    return refuse(output.name, "the network has no parameters to train");

  std::vector<bool> used(state_->model.nodes.size());
  used[static_cast<size_t>(logits.node_)] = true;
  for (size_t i = used.size(); i-- > 0;) {
    const nn::Node& node = state_->model.nodes[i];
    if (!used[i])
      return refuse(node.name,
                    fmt::format("its output {} does not lead to {}; use it or leave it out",
                                node.shape.text(), output.name));
    for (const int input : node.inputs) used[static_cast<size_t>(input)] = true;
  }

  auto model = std::make_shared<nn::Model>(state_->model);
  model->output = logits.node_;
  return Network(std::move(model));
}

Network::Network(std::shared_ptr<const nn::Model> model) : model_(std::move(model)) {}

const std::string& Network::name() const { return model_->name; }

ImageSize Network::input_size() const {
  const Shape& shape = model_->input_shape();
  return {shape.h, shape.w, shape.c};
}

int64_t Network::classes() const { return model_->classes(); }

int64_t Network::parameter_count() const { return model_->parameter_elements(); }

std::vector<Network::ParameterInfo> Network::parameters() const {
  std::vector<ParameterInfo> list;
  for (const nn::Parameter& parameter : model_->parameters)
    list.push_back({parameter.name, parameter.dims});
  return list;
}

const nn::Model& nn::model_of(const Network& network) { return *network.model_; }

}  // namespace tri
