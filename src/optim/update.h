#pragma once
// Room: optim. In: a gradient of a few elements. Out: the same elements' weights and state, stepped
// in place, and the gradient's statistics. Called tile by tile inside back-propagation, from many
// threads at once on disjoint ranges; knows no layer, graph or schedule.
//
// Arithmetic is fp32 and rounding happens on store only. A result depends on the arguments alone,
// never on the tiling, the thread or the SIMD target.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "optim/storage.h"

namespace tri::optim {

enum class Rule : uint8_t {
#define TRI_RULE(enumerator, name, moments, kernel) enumerator,
#include "optim/rule_list.inc"
#undef TRI_RULE
};
std::string_view name(Rule rule);
std::optional<Rule> parse_rule(std::string_view name);
size_t moments(Rule rule);  // 1 or 2; kSgd without momentum may be bound with 0

// The user's view of a step, in PyTorch's terms (SGD with dampening 0, Adam, AdamW of 1.13).
struct Hyper {
  double lr = 0.1;
  double momentum = 0.9;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;  // added to the root, as PyTorch does
  double weight_decay = 0.0;
  bool nesterov = false;
  bool decoupled = false;   // decay the weight itself; kAdamW and kLamb always do
  int64_t step = 1;         // of this parameter, from 1: Adam's bias correction
  double grad_scale = 1.0;  // multiplies the gradient before use: clipping, 1 / loss scale
  double trust = 0.001;     // kLars: its trust coefficient
};

// What the kernels use: computed once per layer and step, because a tile is too short for pow().
struct Coefficients {
  Rule rule = Rule::kSgd;
  bool nesterov = false;
  float grad_scale = 1;
  float l2 = 0;     // coupled decay: g += l2 * w
  float keep = 1;   // decoupled decay: w *= keep
  float rate = 0;   // lr; Adam: lr * mean_scale
  float trust = 1;  // of the layer: see apply_trust()
  float beta1 = 0;  // or the momentum
  float beta2 = 0;
  float fresh1 = 1;  // 1 - beta1, rounded once
  float fresh2 = 1;
  float mean_scale = 1;  // 1 / first bias correction
  float root_scale = 1;  // 1 / sqrt(second bias correction)
  float eps = 0;
  float decay = 0;  // kLamb: part of the direction
};
// REQUIRES: step >= 1; eps > 0 where the rule divides by it.
Coefficients coefficients(Rule rule, const Hyper& hyper);

// Where stochastic rounding takes its noise from, with the element's number as the last counter.
struct Noise {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint32_t tensor = 0;
};

// Of the gradient as given, before grad_scale; non-finite elements are counted and left out.
struct GradStats {
  double sum = 0;
  double sum_squares = 0;
  float max_abs = 0;
  uint64_t nonfinite = 0;

  // Tiles are joined in tile order, so that the sums have one order.
  GradStats& operator+=(const GradStats& other);
  // As of the gradient times `factor` > 0.
  void scale(double factor);
  bool operator==(const GradStats&) const = default;
};

// Steps elements [begin, begin + count); grad[0] belongs to element `begin`. A block of kBlock
// elements with a non-finite (scaled) gradient is left untouched.
// REQUIRES: begin a multiple of kBlock; count too, unless the range ends the parameter.
GradStats update(const Coefficients& coefficients, const ParamStorage& storage, size_t begin,
                 size_t count, const float* grad, const Noise& noise) noexcept;

// What update() would report of this gradient with a grad_scale of 1; changes nothing.
GradStats stats_of(const float* grad, size_t count) noexcept;

// LARS and LAMB scale a layer's step by its norms, so they need two passes over a layer's gradient:
// measure() on every tile (changes nothing), the sums joined in tile order, apply_trust(),
// update(). Without the first two they act with a trust of 1, as is usual for biases and norm
// parameters.
struct Norms {
  double weight_squares = 0;
  double direction_squares = 0;  // of the scaled gradient (LARS) or of Adam's direction (LAMB)
  uint64_t nonfinite = 0;        // gradients; their blocks are left out

  Norms& operator+=(const Norms& other);
  bool operator==(const Norms&) const = default;
};
bool needs_norms(Rule rule);
Norms measure(const Coefficients& coefficients, const ParamStorage& storage, size_t begin,
              size_t count, const float* grad) noexcept;
void apply_trust(Coefficients& coefficients, const Hyper& hyper, const Norms& norms);

}  // namespace tri::optim
