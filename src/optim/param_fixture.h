#pragma once
// Room: optim, tests and benches only. One parameter with its own bytes.
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "hwy/aligned_allocator.h"
#include "optim/kernel.h"
#include "optim/update.h"

namespace tri::optim {

inline constexpr Rule kRules[] = {Rule::kSgd, Rule::kAdam, Rule::kAdamW, Rule::kLars, Rule::kLamb};

struct Form {
  WeightForm weight;
  StateForm state;
  std::string text(Rule rule) const {
    return std::string(name(rule)) + " " + std::string(name(weight)) + " " +
           std::string(name(state));
  }
};
inline constexpr Form kForms[] = {
    {WeightForm::kF32, StateForm::kF32},
    {WeightForm::kF32, StateForm::kInt8},
    {WeightForm::kF32AndBf16, StateForm::kF32},
    {WeightForm::kBf16x16, StateForm::kF32},
    {WeightForm::kBf16x16, StateForm::kBf16},
    {WeightForm::kBf16x8, StateForm::kBf16},
    {WeightForm::kBf16x8, StateForm::kInt8},
    {WeightForm::kF16x8, StateForm::kInt8},
    {WeightForm::kBf16Stochastic, StateForm::kInt8},
};

inline std::vector<float> random_floats(size_t count, uint32_t seed, double deviation) {
  std::mt19937 bits(seed);
  std::normal_distribution<double> normal(0, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(normal(bits));
  return values;
}

class Param {
 public:
  Param(Rule rule, WeightForm weight, StateForm state, const std::vector<float>& values)
      : weight_bytes_(weight_bytes(weight, values.size())),
        state_bytes_(state_bytes(state, values.size(), moments(rule))),
        moments_(moments(rule)),
        bytes_(hwy::AllocateAligned<std::byte>(weight_bytes_ + state_bytes_)),
        storage_(bind(weight, state, values.size(), moments_, bytes_.get(),
                      bytes_.get() + weight_bytes_)) {
    init_storage(storage_, values);
  }
  Param(const Param& other)
      : weight_bytes_(other.weight_bytes_),
        state_bytes_(other.state_bytes_),
        moments_(other.moments_),
        bytes_(hwy::AllocateAligned<std::byte>(weight_bytes_ + state_bytes_)),
        storage_(bind(other.storage_.weight_form, other.storage_.state_form, other.storage_.count,
                      moments_, bytes_.get(), bytes_.get() + weight_bytes_)) {
    std::memcpy(bytes_.get(), other.bytes_.get(), weight_bytes_ + state_bytes_);
  }

  const ParamStorage& storage() const { return storage_; }
  GradStats step(const Coefficients& c, const float* grad, const Noise& noise = {}) {
    return update(c, storage_, 0, storage_.count, grad, noise);
  }
  std::vector<float> weights() const {
    std::vector<float> values(storage_.count);
    read_weights(storage_, 0, values);
    return values;
  }
  bool same_bytes(const Param& other) const {
    return std::memcmp(bytes_.get(), other.bytes_.get(), weight_bytes_ + state_bytes_) == 0;
  }

 private:
  size_t weight_bytes_, state_bytes_, moments_;
  hwy::AlignedFreeUniquePtr<std::byte[]> bytes_;
  ParamStorage storage_;
};

struct Kernels {
  GradStats (*update)(const Task&) noexcept;
  Norms (*measure)(const Task&) noexcept;
};
inline Kernels reference(Rule rule) {
  static constexpr Kernels kReferences[] = {
#define TRI_RULE(enumerator, name, moments, kernel) {kernel##_update_ref, kernel##_measure_ref},
#include "optim/rule_list.inc"
#undef TRI_RULE
  };
  return kReferences[static_cast<size_t>(rule)];
}

}  // namespace tri::optim
