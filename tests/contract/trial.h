#pragma once
// One step of a network, twice: as the engine takes it and as a Problem for the interpreter, with
// the same drawn weights, batch and masks.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "contract/interpreter.h"
#include "exec/engine.h"

namespace tri::contract {

// Weights within sqrt(3 / fan in), so that values neither grow nor vanish; norms around 1 and 0.
Problem draw_problem(const nn::Model& model, uint64_t seed, int64_t samples, int64_t ghost);

// An engine with the problem's parameters and its batch in buffer 0. REQUIRES: a valid plan.
std::unique_ptr<exec::Engine> engine_for(std::shared_ptr<const nn::Model> model,
                                         const Problem& problem, exec::EngineOptions options);

// All parameters' gradients of the last step. REQUIRES: StepSpec::update == false.
std::vector<std::vector<float>> gradients(const exec::Engine& engine);
// All parameters, in PyTorch's order.
std::vector<std::vector<float>> weights(exec::Engine& engine);
std::vector<float> logits(const exec::Engine& engine, int64_t samples);

// Empty if `got` lies as near to `want` as it may: within kSlack times the distance of plain code
// of the same precision, and the norm `roundings`. Otherwise a sentence.
std::string compare(const std::string& name, const Numbers& want, const Numbers& plain,
                    double roundings, std::span<const float> got);
double norm(const Numbers& values);

}  // namespace tri::contract
