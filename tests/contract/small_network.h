#pragma once
// A network with every kind of weight, and what is left of it after some steps of training.
#include <cstddef>
#include <memory>
#include <vector>

#include "contract/trial.h"
#include "exec/engine.h"
#include "tri/graph.h"

namespace tri::contract {

std::shared_ptr<const nn::Model> finish(const Graph& graph, Tensor logits);

// Every kind of weight: dense and grouped convolution, depthwise, linear, biases, norms; channels
// that fill no panel. The dense layers are larger than a tile of the update.
std::shared_ptr<const nn::Model> small_network();

using Bytes = std::vector<std::byte>;

// Weights, optimizer state and running statistics as they lie in memory.
std::vector<Bytes> persistent(exec::Engine& engine);

std::vector<exec::LayerFormats> table(const nn::Model& model, exec::LayerFormats row);

struct Trained {
  std::vector<Bytes> bytes;
  std::vector<double> losses;
  bool operator==(const Trained&) const = default;
};

// Rates that move every weight.
void set_rates(exec::Engine& engine);

Trained train(const std::shared_ptr<const nn::Model>& model, const exec::EngineOptions& options,
              size_t threads, uint64_t steps);

inline constexpr optim::WeightForm kWeightForms[] = {
    optim::WeightForm::kF32,    optim::WeightForm::kF32AndBf16, optim::WeightForm::kBf16x16,
    optim::WeightForm::kBf16x8, optim::WeightForm::kF16x8,      optim::WeightForm::kBf16Stochastic};
inline constexpr optim::StateForm kStateForms[] = {optim::StateForm::kF32, optim::StateForm::kBf16,
                                                   optim::StateForm::kInt8};
inline constexpr optim::Rule kRules[] = {optim::Rule::kSgd, optim::Rule::kAdam, optim::Rule::kAdamW,
                                         optim::Rule::kLars, optim::Rule::kLamb};

}  // namespace tri::contract
