#pragma once
// Room: nn. The models known by name (model_list.inc). In: a name and sizes. Out: a Model.
#include <span>
#include <string>
#include <string_view>

#include "nn/model.h"
#include "tri/graph.h"
#include "tri/models.h"
#include "tri/result.h"

namespace tri::nn {

using tri::ModelOptions;

#define TRI_MODEL(name, recipe) Tensor recipe(Graph& graph, const ModelOptions& options);
#include "nn/model_list.inc"
#undef TRI_MODEL

struct CatalogEntry {
  std::string name;
  Recipe recipe;
};

// In the order of model_list.inc, and then what add_model() added.
std::span<const CatalogEntry> catalog();

// Refuses an unknown name (and lists the known ones), sizes below 1 or too small for the model's
// strides, a width that is not within 0..kMaxWidth, and rates the model has no place for.
inline constexpr double kMaxWidth = 16.0;
Result<Model> build(std::string_view name, const ModelOptions& options);

}  // namespace tri::nn
