#include "optim/update.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "optim/kernel.h"
#include "optim/lamb/lamb.h"
#include "optim/lars/lars.h"

namespace tri::optim {
namespace {

struct RuleEntry {
  std::string_view name;
  size_t moments;
  GradStats (*update)(const Task&) noexcept;
  Norms (*measure)(const Task&) noexcept;
};

constexpr RuleEntry kRules[] = {
#define TRI_RULE(enumerator, name, moments, kernel) \
  {name, moments, kernel##_update, kernel##_measure},
#include "optim/rule_list.inc"
#undef TRI_RULE
};

const RuleEntry& entry(Rule rule) { return kRules[static_cast<size_t>(rule)]; }

void check_range(const ParamStorage& storage, size_t begin, size_t count) {
  TRI_CHECK(begin % kBlock == 0 && begin + count <= storage.count, "[{}, +{}) of {}", begin, count,
            storage.count);
  TRI_CHECK(count % kBlock == 0 || begin + count == storage.count, "[{}, +{}) of {}", begin, count,
            storage.count);
}

}  // namespace

std::string_view name(Rule rule) { return entry(rule).name; }

std::optional<Rule> parse_rule(std::string_view name) {
  for (size_t i = 0; i < std::size(kRules); ++i) {
    if (kRules[i].name == name) return static_cast<Rule>(i);
  }
  return std::nullopt;
}

size_t moments(Rule rule) { return entry(rule).moments; }

bool needs_norms(Rule rule) { return rule == Rule::kLars || rule == Rule::kLamb; }

Coefficients coefficients(Rule rule, const Hyper& hyper) {
  TRI_CHECK(hyper.step >= 1, "step = {}", hyper.step);
  const bool adaptive = moments(rule) == 2;
  const bool in_direction = rule == Rule::kLamb;
  const bool decoupled = !in_direction && (hyper.decoupled || rule == Rule::kAdamW);
  const double beta1 = adaptive ? hyper.beta1 : hyper.momentum;
  Coefficients c;
  c.rule = rule;
  c.nesterov = hyper.nesterov && !adaptive;
  c.grad_scale = static_cast<float>(hyper.grad_scale);
  c.l2 = static_cast<float>(decoupled || in_direction ? 0 : hyper.weight_decay);
  c.keep = static_cast<float>(decoupled ? 1 - hyper.lr * hyper.weight_decay : 1);
  c.decay = static_cast<float>(in_direction ? hyper.weight_decay : 0);
  c.beta1 = static_cast<float>(beta1);
  c.rate = static_cast<float>(hyper.lr);
  if (!adaptive) return c;

  c.eps = static_cast<float>(hyper.eps);
  TRI_CHECK(c.eps > 0, "eps = {}", hyper.eps);
  // From double: 1 - 0.999f is off by 5e-5 of its value.
  const double step = static_cast<double>(hyper.step);
  c.beta2 = static_cast<float>(hyper.beta2);
  c.fresh1 = static_cast<float>(1 - beta1);
  c.fresh2 = static_cast<float>(1 - hyper.beta2);
  c.root_scale = static_cast<float>(1 / std::sqrt(1 - std::pow(hyper.beta2, step)));
  c.mean_scale = static_cast<float>(1 / (1 - std::pow(beta1, step)));
  // As PyTorch: one rounding of lr and correction together.
  if (!in_direction) c.rate = static_cast<float>(hyper.lr / (1 - std::pow(beta1, step)));
  return c;
}

GradStats& GradStats::operator+=(const GradStats& other) {
  sum += other.sum;
  sum_squares += other.sum_squares;
  max_abs = std::max(max_abs, other.max_abs);
  nonfinite += other.nonfinite;
  return *this;
}

void GradStats::scale(double factor) {
  sum *= factor;
  sum_squares *= factor * factor;
  max_abs = static_cast<float>(double{max_abs} * factor);
}

Norms& Norms::operator+=(const Norms& other) {
  weight_squares += other.weight_squares;
  direction_squares += other.direction_squares;
  nonfinite += other.nonfinite;
  return *this;
}

GradStats update(const Coefficients& coefficients, const ParamStorage& storage, size_t begin,
                 size_t count, const float* grad, const Noise& noise) noexcept {
  check_range(storage, begin, count);
  return entry(coefficients.rule).update({coefficients, storage, begin, count, grad, noise});
}

Norms measure(const Coefficients& coefficients, const ParamStorage& storage, size_t begin,
              size_t count, const float* grad) noexcept {
  check_range(storage, begin, count);
  return entry(coefficients.rule).measure({coefficients, storage, begin, count, grad, Noise{}});
}

void apply_trust(Coefficients& coefficients, const Hyper& hyper, const Norms& norms) {
  if (coefficients.rule == Rule::kLars) {
    coefficients.trust = static_cast<float>(lars_trust(hyper, norms));
  } else if (coefficients.rule == Rule::kLamb) {
    coefficients.trust = static_cast<float>(lamb_trust(norms));
  }
}

}  // namespace tri::optim
