#pragma once
// Room: nn. The models known by name (model_list.inc). In: a name and sizes. Out: a Model.
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "nn/model.h"
#include "tri/graph.h"
#include "tri/result.h"

namespace tri::nn {

struct ModelOptions {
  int64_t height = 32, width = 32, channels = 3;
  int64_t classes = 10;
  double width_multiplier = 1.0;      // what it scales is said in each model's file
  std::optional<float> dropout = {};  // before the last layer; the model's own, if not given
  std::optional<float> stochastic_depth = {};  // the model's own, if not given
};

// Emits the layers of a model into an empty graph and returns the logits. Mistakes in sizes are
// left to the graph.
using Recipe = Tensor (*)(Graph& graph, const ModelOptions& options);

#define TRI_MODEL(name, recipe) Tensor recipe(Graph& graph, const ModelOptions& options);
#include "nn/model_list.inc"
#undef TRI_MODEL

struct CatalogEntry {
  std::string_view name;
  Recipe recipe;
};

// In the order of model_list.inc.
std::span<const CatalogEntry> catalog();

// Refuses an unknown name (and lists the known ones), sizes below 1 or too small for the model's
// strides, a width that is not within 0..kMaxWidth, and rates the model has no place for.
inline constexpr double kMaxWidth = 16.0;
Result<Model> build(std::string_view name, const ModelOptions& options);

}  // namespace tri::nn
