#pragma once
// Door of room nn: models by name. A name stands for a recipe, not for one network: the data say
// how large the images are and how many classes there are. A program that adds a recipe of its own
// can train it, plan it, resume it and predict with it as with the built-in ones (examples/).
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tri/graph.h"
#include "tri/result.h"

namespace tri {

struct ModelOptions {
  int64_t height = 32, width = 32, channels = 3;
  int64_t classes = 10;
  double width_multiplier = 1.0;      // what it scales is said in each model's file
  std::optional<float> dropout = {};  // before the last layer; the model's own, if not given
  std::optional<float> stochastic_depth = {};  // the model's own, if not given
};

// Emits the layers of a model into an empty graph and returns the logits, always the same ones for
// the same options. Mistakes in sizes are left to the graph.
using Recipe = std::function<Tensor(Graph& graph, const ModelOptions& options)>;

// Makes `name` a value of `model` for this process. Fails with kInvalid for a name that is taken or
// has other characters than a-z, 0-9, '-' and '_'. Not thread-safe: add before anything else runs.
Result<void> add_model(const std::string& name, Recipe recipe);

}  // namespace tri
