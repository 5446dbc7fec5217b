#pragma once
// The golden files of this folder: the formula that makes their weights and batches (the twin of
// make_golden.py), how they are read, and how a tensor is compared with a fingerprint.
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nn/catalog.h"
#include "nn/model.h"
#include "tri/result.h"

namespace tri::golden {

// The folder in the source tree.
std::filesystem::path folder();

// Number i of the sequence called `name`: SplitMix64 of FNV-1a(name) + i.
uint64_t hash(std::string_view name, uint64_t i);

// In [-1, 1), a multiple of 2^-23.
double uniform(std::string_view name, uint64_t i);

// values[i] = center + spread * uniform(name, i), rounded to float once.
void fill(std::string_view name, double center, double spread, std::span<float> values);

// Weights within sqrt(6 / fan in), norm weights 1 +- 0.2, all else +- 0.1; PyTorch's layout.
void fill_parameter(const nn::Parameter& parameter, std::span<float> values);

// A tensor of which only this is stored.
struct Fingerprint {
  uint64_t elements = 0;
  double norm = 0;              // L2
  double projection = 0;        // dot product with uniform(NAME/projection, i)
  double error_norm = 0;        // L2 distance of PyTorch in float32
  double error_max = 0;         // largest distance of one element
  std::vector<double> samples;  // elements hash(NAME/sample, k) % elements
};

// Empty if `values`, in PyTorch's layout, agree with the fingerprint: the samples, the projection
// and the norm within `slack` times PyTorch's own errors, a float rounding of each, and `share` of
// the norm (for steps with close calls; otherwise 0). If not, a sentence with the first that does
// not.
std::string compare(std::string_view name, const Fingerprint& expected,
                    std::span<const float> values, double slack, double share = 0.0);

struct Curve {
  double lr = 0, momentum = 0, weight_decay = 0;
  std::vector<double> losses;  // before each step
  std::vector<double> errors;  // of PyTorch in float32
};

// One file of steps/. Dropout and stochastic depth are off.
struct Step {
  std::string model;
  nn::ModelOptions options;
  int64_t batch = 0;
  double label_smoothing = 0;
  int64_t salt = 0;  // which batch of images
  // ReLU inputs and pooling maxima so close that correct float code may take the other side. If
  // there are any, gradients may differ by about a pixel's share (some 1e-2 of the norm) more than
  // the errors say; loss and logits do not.
  int64_t close_calls = 0;
  double loss = 0, loss_error = 0;
  std::vector<double> logits;                    // (batch, classes)
  double logits_error = 0;                       // largest distance
  std::map<std::string, Fingerprint> gradients;  // by parameter
  std::map<std::string, Fingerprint>
      running;                          // NODE.running_mean, NODE.running_var, after the step
  std::map<std::string, Curve> curves;  // "sgd", "adamw"; empty in most files

  std::vector<float> images() const;    // (N, C, H, W)
  std::vector<int64_t> labels() const;  // (N)
};

std::vector<std::filesystem::path> step_files();
Result<Step> read_step(const std::filesystem::path& path);

struct Array {
  std::vector<int64_t> dims;  // PyTorch's order
  std::vector<double> values;
};

// One entry of operations.json.
struct Operation {
  std::string name;
  ops::OpKind kind = ops::OpKind::kInput;
  ops::Attributes attributes;
  std::vector<int64_t> labels;              // softmax_cross_entropy
  std::map<std::string, Array> inputs;      // "x", "factors"
  std::map<std::string, Array> parameters;  // "weight", "bias"
  Array output;
  Array upstream;                          // gradient of the output
  std::map<std::string, Array> gradients;  // by input or parameter
  std::map<std::string, Array> extras;     // running statistics before and after
};

Result<std::vector<Operation>> read_operations();

}  // namespace tri::golden
