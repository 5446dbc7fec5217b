#include "nn/builder.h"

#include <fmt/format.h>

#include <cmath>

namespace tri::nn {
namespace {

using ops::Attributes;
using ops::OpKind;
using tensor::Shape;

Init resolve(const InitRule& rule, double fan_in, double fan_out) {
  switch (rule.kind) {
    case InitRule::Kind::kPytorch:
      return {Init::Kind::kUniform, 0.0, 1.0 / std::sqrt(fan_in)};
    case InitRule::Kind::kConstant:
      return {Init::Kind::kConstant, rule.value, 0.0};
    case InitRule::Kind::kUniform:
      return {Init::Kind::kUniform, 0.0, rule.value};
    case InitRule::Kind::kNormal:
      return {Init::Kind::kNormal, 0.0, rule.value};
    case InitRule::Kind::kKaimingNormal:
      return {Init::Kind::kNormal, 0.0, std::sqrt(2.0 / fan_out)};
    case InitRule::Kind::kKaimingUniform:
      return {Init::Kind::kUniform, 0.0, std::sqrt(6.0 / fan_in)};
  }
  return {};
}

// Element i of the output is made of element i of each input, whatever i stands for.
bool element_by_element(OpKind kind) {
  return kind == OpKind::kActivation || kind == OpKind::kDropout ||
         kind == OpKind::kStochasticDepth || kind == OpKind::kAdd || kind == OpKind::kFlatten;
}

}  // namespace

Builder::Builder(std::string name, const Shape& input) {
  model_.name = std::move(name);
  Attributes attr;
  attr.input_shape = input;
  add(OpKind::kInput, "input", {}, attr);
}

int Builder::fail(std::string_view name, std::string_view message) {
  if (!error_)
    error_ = Error{ErrorCode::kInvalid, fmt::format("{}: {}: {}", model_.name, name, message)};
  return kNothing;
}

std::string Builder::automatic_name(OpKind kind, std::span<const int> inputs) const {
  std::string name(ops::name(kind));
  if (!inputs.empty() && inputs[0] >= 0) name = fmt::format("{}/{}", node(inputs[0]).name, name);
  if (names_.contains(name)) name += fmt::format("#{}", model_.nodes.size());
  return name;
}

int Builder::add(OpKind kind, std::string_view given_name, std::span<const int> inputs,
                 const Attributes& attr) {
  if (error_) return kNothing;
  const std::string name =
      given_name.empty() ? automatic_name(kind, inputs) : std::string(given_name);
  if (names_.contains(name)) return fail(name, "the name is used twice; give each layer its own");

  std::vector<Shape> shapes;
  for (const int input : inputs) {
    if (input == kForeign) return fail(name, "an input is a tensor of another graph");
    if (input < 0) return fail(name, "an input is an empty tensor; pass a layer's output");
    shapes.push_back(shape(input));
  }
  const Result<Shape> output = ops::infer(kind, attr, shapes);
  if (!output) return fail(name, output.error().message);

  Node added{.kind = kind,
             .name = name,
             .inputs = {inputs.begin(), inputs.end()},
             .attr = attr,
             .shape = *output};
  const Result<std::optional<Shape>> image = flattened_image(added);
  if (!image) return fail(name, image.error().message);
  if (kind == OpKind::kLinear) added.attr.flattened_from = flattened(inputs[0]).value_or(shapes[0]);
  if (kind == OpKind::kConv2d || kind == OpKind::kLinear) {
    added.layer = model_.layers++;
  } else if (!inputs.empty()) {
    added.layer = node(inputs[0]).layer;
  }

  names_.insert(name);
  flattened_.push_back(*image);
  model_.nodes.push_back(std::move(added));
  return static_cast<int>(model_.nodes.size()) - 1;
}

// The entry of flattened_ for a node about to be added; refuses a node for which the order of the
// channels matters behind a flatten.
Result<std::optional<Shape>> Builder::flattened_image(const Node& added) const {
  if (added.kind == OpKind::kLinear || added.inputs.empty()) return std::optional<Shape>();
  const std::optional<Shape>& first = flattened(added.inputs[0]);
  if (added.kind == OpKind::kFlatten && !first) {
    const Shape& image = shape(added.inputs[0]);
    return image.pixels() == 1 ? std::nullopt : std::optional(image);
  }
  for (const int input : added.inputs) {
    const std::optional<Shape>& image = flattened(input);
    if (element_by_element(added.kind) ? image == first : !image) continue;
    return unexpected(ErrorCode::kInvalid,
                      fmt::format("its input {} is the flattened image {}, and behind flatten "
                                  "channels are not in PyTorch's order; use flatten right before "
                                  "linear only",
                                  shape(input).text(), (image ? image : first)->text()));
  }
  return first;
}

int Builder::add_parameter(const std::string& owner, std::string_view suffix, ParamRole role,
                           std::vector<int64_t> dims, const Init& init) {
  int64_t elements = 1;
  for (const int64_t dim : dims) {
    if (elements > ops::kMaxElements / dim)
      return fail(owner, fmt::format("the {} {} would have more than {} elements", suffix,
                                     fmt::join(dims, "x"), ops::kMaxElements));
    elements *= dim;
  }
  model_.parameters.push_back({fmt::format("{}.{}", owner, suffix), role, std::move(dims), init});
  return static_cast<int>(model_.parameters.size()) - 1;
}

int Builder::add_weighted(OpKind kind, ParamRole role, std::string_view name, int input,
                          const Attributes& attr, const InitRule& init, const InitRule& bias_init) {
  const int index = add(kind, name, std::span(&input, 1), attr);
  if (index < 0) return index;
  const int64_t in = shape(input).c / attr.groups;
  std::vector<int64_t> dims{attr.out_channels, in};
  if (role == ParamRole::kConvWeight) dims.insert(dims.end(), {attr.kernel_h, attr.kernel_w});
  // In floating point: the product of unchecked extents may exceed an integer.
  const double window = static_cast<double>(attr.kernel_h) * static_cast<double>(attr.kernel_w);
  const double fan_in = static_cast<double>(in) * window;
  const double fan_out = static_cast<double>(attr.out_channels) * window;

  Node& added = node(index);
  added.weight =
      add_parameter(added.name, "weight", role, std::move(dims), resolve(init, fan_in, fan_out));
  if (attr.bias)
    added.bias = add_parameter(added.name, "bias", ParamRole::kBias, {attr.out_channels},
                               resolve(bias_init, fan_in, fan_out));
  return index;
}

int Builder::add_conv(std::string_view name, int input, const Attributes& attr,
                      const InitRule& init, const InitRule& bias_init) {
  return add_weighted(OpKind::kConv2d, ParamRole::kConvWeight, name, input, attr, init, bias_init);
}

int Builder::add_linear(std::string_view name, int input, const Attributes& attr,
                        const InitRule& init, const InitRule& bias_init) {
  return add_weighted(OpKind::kLinear, ParamRole::kLinearWeight, name, input, attr, init,
                      bias_init);
}

int Builder::add_norm(std::string_view name, int input, const Attributes& attr) {
  const int index = add(OpKind::kBatchNorm, name, std::span(&input, 1), attr);
  if (index < 0) return index;
  Node& added = node(index);
  added.weight = add_parameter(added.name, "weight", ParamRole::kNormWeight, {added.shape.c},
                               {Init::Kind::kConstant, 1.0, 0.0});
  added.bias = add_parameter(added.name, "bias", ParamRole::kNormBias, {added.shape.c},
                             {Init::Kind::kConstant, 0.0, 0.0});
  return index;
}

Result<Model> Builder::finish(int output) const {
  if (error_) return unexpected(*error_);
  const auto refuse = [&](std::string_view layer, std::string_view message) {
    return unexpected(ErrorCode::kInvalid, fmt::format("{}: {}: {}", model_.name, layer, message));
  };
  if (output < 0) return refuse("finish", "the output is not a tensor of this graph");
  const std::string& name = node(output).name;
  if (shape(output).pixels() != 1 || flattened(output))
    return refuse(name, fmt::format("the output is the image {}; it must be 1x1xCLASSES (HWC), as "
                                    "from a linear layer or a global pool",
                                    flattened(output).value_or(shape(output)).text()));
  if (model_.parameters.empty()) return refuse(name, "the network has no parameters to train");

  std::vector<bool> leads(model_.nodes.size());
  leads[static_cast<size_t>(output)] = true;
  for (size_t i = leads.size(); i-- > 0;) {
    const Node& current = model_.nodes[i];
    if (!leads[i])
      return refuse(current.name, fmt::format("its output {} does not lead to {}; use it or leave "
                                              "it out",
                                              current.shape.text(), name));
    for (const int input : current.inputs) leads[static_cast<size_t>(input)] = true;
  }

  Model model = model_;
  model.output = output;
  return model;
}

}  // namespace tri::nn
