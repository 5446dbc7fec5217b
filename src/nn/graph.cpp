// The public faces of Builder and Model (include/tri/graph.h).
#include "tri/graph.h"

#include <atomic>

#include "nn/builder.h"
#include "nn/model.h"

namespace tri {
namespace {

using nn::Builder;
using ops::Attributes;
using ops::OpKind;
using tensor::Shape;

// Handles carry the graph's number, not its address: addresses are used again.
uint64_t next_graph_number() {
  static std::atomic<uint64_t> number{0};
  return ++number;
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

struct Graph::State {
  uint64_t number = next_graph_number();
  Builder builder;

  int index(Tensor x) const {
    if (x.node_ < 0) return Builder::kNothing;
    return x.graph_ == number ? x.node_ : Builder::kForeign;
  }

  Tensor handle(int node) const {
    Tensor x;
    x.graph_ = number;
    x.node_ = node;
    return x;
  }

  Tensor add(OpKind kind, std::string_view name, std::span<const Tensor> inputs,
             const Attributes& attr) {
    std::vector<int> nodes;
    for (const Tensor input : inputs) nodes.push_back(index(input));
    return handle(builder.add(kind, name, nodes, attr));
  }

  Tensor add(OpKind kind, std::string_view name, Tensor x, const Attributes& attr = {}) {
    return add(kind, name, std::span(&x, 1), attr);
  }
};

Graph::Graph(std::string name, ImageSize input)
    : state_(new State{.builder =
                           Builder(std::move(name), {input.height, input.width, input.channels})}) {
}

Graph::~Graph() = default;

Tensor Graph::input() const {
  return state_->handle(state_->builder.has_input() ? 0 : Builder::kNothing);
}

Tensor Graph::conv(Tensor x, std::string_view name, const ConvOptions& options) {
  Attributes attr = window(options.kernel, options.stride, options.padding);
  attr.out_channels = options.out;
  attr.groups = options.groups;
  attr.bias = options.bias;
  return state_->handle(
      state_->builder.add_conv(name, state_->index(x), attr, options.init, options.bias_init));
}

Tensor Graph::linear(Tensor x, std::string_view name, const LinearOptions& options) {
  Attributes attr;
  attr.out_channels = options.out;
  attr.bias = options.bias;
  return state_->handle(
      state_->builder.add_linear(name, state_->index(x), attr, options.init, options.bias_init));
}

Tensor Graph::batch_norm(Tensor x, std::string_view name, const NormOptions& options) {
  Attributes attr;
  attr.eps = options.eps;
  attr.momentum = options.momentum;
  return state_->handle(state_->builder.add_norm(name, state_->index(x), attr));
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
  const int index = state_->index(x);
  if (index < 0) return {};
  const Shape& shape = state_->builder.shape(index);
  return {shape.h, shape.w, shape.c};
}

Result<Network> Graph::finish(Tensor logits) const {
  Result<nn::Model> model = state_->builder.finish(state_->index(logits));
  if (!model) return unexpected(model.error());
  return Network(std::make_shared<const nn::Model>(*std::move(model)));
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
