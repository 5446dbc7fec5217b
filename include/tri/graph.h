#pragma once
// Public. A network of your own, layer by layer:
//
//   tri::Graph graph("mine", {.height = 28, .width = 28, .channels = 1});
//   tri::Tensor x = graph.input();
//   x = graph.conv(x, "conv1", {.out = 16, .kernel = 3, .padding = 1});
//   x = graph.global_avg_pool(graph.relu(x));
//   x = graph.linear(x, "fc", {.out = 10});
//   tri::Result<tri::Network> network = graph.finish(x);
//
// Nothing is computed here. Mistakes do not interrupt the page: the first one is remembered, with
// the layer's name and the shapes, and finish() returns it. A graph belongs to one thread.
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tri/result.h"

namespace tri {

class Network;
namespace nn {
struct Model;
const Model& model_of(const Network& network);
}  // namespace nn

// A size along both axes of an image: 3 means 3 x 3.
struct Extent {
  int64_t h, w;
  constexpr Extent(int64_t both) : h(both), w(both) {}  // NOLINT: implicit on purpose
  constexpr Extent(int64_t height, int64_t width) : h(height), w(width) {}
};

struct ImageSize {
  int64_t height = 0, width = 0, channels = 0;
};

// How the first values of a parameter are drawn. Fans are counted as PyTorch does.
struct InitRule {
  enum class Kind : uint8_t {
    kPytorch,
    kConstant,
    kUniform,
    kNormal,
    kKaimingNormal,
    kKaimingUniform
  };
  Kind kind = Kind::kPytorch;
  double value = 0.0;

  // PyTorch's default for weights and biases: uniform within 1 / sqrt(fan in).
  static constexpr InitRule pytorch() { return {}; }
  static constexpr InitRule constant(double value) { return {Kind::kConstant, value}; }
  static constexpr InitRule uniform(double bound) { return {Kind::kUniform, bound}; }
  static constexpr InitRule normal(double deviation) { return {Kind::kNormal, deviation}; }
  // Normal of deviation sqrt(2 / fan out).
  static constexpr InitRule kaiming_normal() { return {Kind::kKaimingNormal, 0.0}; }
  // Uniform within sqrt(6 / fan in).
  static constexpr InitRule kaiming_uniform() { return {Kind::kKaimingUniform, 0.0}; }
};

struct ConvOptions {
  int64_t out = 0;  // channels
  Extent kernel = 1;
  Extent stride = 1;
  Extent padding = 0;
  int64_t groups = 1;
  bool bias = true;
  InitRule init = {};
  InitRule bias_init = {};
};

struct LinearOptions {
  int64_t out = 0;
  bool bias = true;
  InitRule init = {};
  InitRule bias_init = {};
};

struct NormOptions {
  float eps = 1e-5f;
  float momentum = 0.1f;  // weight of the new batch in the running statistics
};

struct PoolOptions {
  Extent kernel = 2;
  std::optional<Extent> stride = {};  // the kernel, if not given
  Extent padding = 0;
  bool ceil_mode = false;         // keep a last window that overhangs the far edge
  bool count_include_pad = true;  // average pooling only
};

// What a layer of a graph gives. Only a handle: copy it freely.
class Tensor {
 public:
  Tensor() = default;

 private:
  friend class Graph;
  uint64_t graph_ = 0;
  int node_ = -1;
};

// A finished graph. Immutable; copies share it.
class Network {
 public:
  struct ParameterInfo {
    std::string name;           // as in PyTorch's state_dict, "conv1.weight"
    std::vector<int64_t> dims;  // as in PyTorch: OIHW, OI or C
  };

  const std::string& name() const;
  ImageSize input_size() const;
  int64_t classes() const;
  int64_t parameter_count() const;  // numbers, not tensors
  std::vector<ParameterInfo> parameters() const;

 private:
  friend class Graph;
  friend const nn::Model& nn::model_of(const Network& network);
  explicit Network(std::shared_ptr<const nn::Model> model);
  std::shared_ptr<const nn::Model> model_;
};

class Graph {
 public:
  Graph(std::string name, ImageSize input);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  Tensor input() const;

  // Layers with parameters. Names are unique in a graph; parameters are NAME.weight and NAME.bias,
  // in the order of the calls.
  Tensor conv(Tensor x, std::string_view name, const ConvOptions& options);
  Tensor linear(Tensor x, std::string_view name, const LinearOptions& options);
  Tensor batch_norm(Tensor x, std::string_view name, const NormOptions& options = {});

  // Layers without parameters. One without a name is called after its first input: "conv1/relu".
  Tensor relu(Tensor x, std::string_view name = {});
  Tensor relu6(Tensor x, std::string_view name = {});
  Tensor silu(Tensor x, std::string_view name = {});
  Tensor sigmoid(Tensor x, std::string_view name = {});
  Tensor max_pool(Tensor x, const PoolOptions& options, std::string_view name = {});
  Tensor avg_pool(Tensor x, const PoolOptions& options, std::string_view name = {});
  Tensor global_avg_pool(Tensor x, std::string_view name = {});
  Tensor add(Tensor main, Tensor shortcut, std::string_view name = {});
  // Joins along the channels.
  Tensor concat(std::span<const Tensor> parts, std::string_view name = {});
  Tensor concat(std::initializer_list<Tensor> parts, std::string_view name = {});
  Tensor split(Tensor x, int64_t first_channel, int64_t channels, std::string_view name = {});
  Tensor channel_shuffle(Tensor x, int64_t groups, std::string_view name = {});
  // Every channel of x times its factor, a 1 x 1 x C tensor: squeeze and excitation.
  Tensor scale(Tensor x, Tensor factors, std::string_view name = {});
  // A rate of 0 adds no layer.
  Tensor dropout(Tensor x, float rate, std::string_view name = {});
  // Drops x for whole samples, so use it before add(). A rate of 0 adds no layer.
  Tensor stochastic_depth(Tensor x, float rate, std::string_view name = {});
  Tensor flatten(Tensor x, std::string_view name = {});

  // Channels, height and width of a layer's output; zeros for a handle that is not of this graph.
  ImageSize size(Tensor x) const;

  // `logits` is 1 x 1 x classes; the loss, softmax cross-entropy, is added by the training.
  // Returns the first mistake made on this graph; a layer that does not lead to `logits` is one.
  Result<Network> finish(Tensor logits) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tri
