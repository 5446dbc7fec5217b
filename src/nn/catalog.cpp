#include "nn/catalog.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace tri::nn {
namespace {

std::vector<CatalogEntry>& entries() {
  static std::vector<CatalogEntry> all = {
#define TRI_MODEL(name, recipe) {name, &recipe},
#include "nn/model_list.inc"
#undef TRI_MODEL
  };
  return all;
}

const CatalogEntry* find(std::string_view name) {
  const auto entry = std::ranges::find(entries(), name, &CatalogEntry::name);
  return entry == entries().end() ? nullptr : &*entry;
}

Unexpected refuse(std::string message) {
  return unexpected(ErrorCode::kInvalid, std::move(message));
}

bool has_op(const Model& model, ops::OpKind kind) {
  return std::ranges::any_of(model.nodes, [&](const Node& node) { return node.kind == kind; });
}

}  // namespace

std::span<const CatalogEntry> catalog() { return entries(); }

Result<Model> build(std::string_view name, const ModelOptions& options) {
  const CatalogEntry* const entry = find(name);
  if (entry == nullptr) {
    std::vector<std::string_view> names;
    for (const CatalogEntry& known : entries()) names.push_back(known.name);
    return refuse(fmt::format("unknown model '{}'; known are {}", name, fmt::join(names, ", ")));
  }
  if (!(options.width_multiplier > 0.0 && options.width_multiplier <= kMaxWidth))
    return refuse(fmt::format("{}: the width is {}; it must be above 0 and at most {}", name,
                              options.width_multiplier, kMaxWidth));

  Graph graph{std::string(name), {options.height, options.width, options.channels}};
  const Tensor logits = entry->recipe(graph, options);
  const Result<Network> network = graph.finish(logits);
  if (!network) return unexpected(network.error());

  Model model = model_of(*network);
  if (options.stochastic_depth.value_or(0.0f) != 0.0f &&
      !has_op(model, ops::OpKind::kStochasticDepth))
    return refuse(
        fmt::format("{}: stochastic depth {} was asked for, but the model has no place "
                    "for it; leave it out",
                    name, *options.stochastic_depth));
  return model;
}

}  // namespace tri::nn

namespace tri {

Result<void> add_model(const std::string& name, Recipe recipe) {
  const auto usual = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  };
  if (name.empty() || !std::ranges::all_of(name, usual)) {
    return nn::refuse(
        fmt::format("a model cannot be called '{}'; use a-z, 0-9, '-' and '_' only", name));
  }
  if (nn::find(name) != nullptr) {
    return nn::refuse(fmt::format("there is a model '{}' already; use another name", name));
  }
  nn::entries().push_back({name, std::move(recipe)});
  return {};
}

}  // namespace tri
