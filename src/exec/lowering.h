#pragma once
// Room: exec. In: a model. Out: the tensors a step really stores, the operations between them, and
// how each value is read. Batch norm, activations, squeeze-excite's product and stochastic depth
// become part of the load transform of the tensor before them (Note [Load transform],
// ops/rows/rows.h) wherever that tensor is read in no other way; elsewhere a value is stored first.
// Knows no batch, bytes or formats.
#include <string>
#include <vector>

#include "nn/model.h"

namespace tri::exec {

using tensor::Shape;

// A tensor and the transform under which everybody reads it.
struct LoweredTensor {
  std::string name;
  Shape shape;
  int layer = -1;     // row of the precision table; -1: the input
  int producer = -1;  // operation; -1: the input
  int norm = -1;      // index into Lowered::norms
  ops::Activation activation = ops::Activation::kNone;
  int depth = -1;  // stochastic depth: index into Lowered::depths
  // Squeeze-excite: this is tensor `scaled` times factor `factor`. It has no bytes of its own, only
  // a gradient.
  int scaled = -1;
  int factor = -1;  // index into Lowered::factors
};

struct LoweredOp {
  ops::OpKind kind = ops::OpKind::kAdd;  // with kernels, or kChannelScale
  int node = -1;                         // of the model; -1: stores a value that a node before made
  std::string name;
  std::vector<int> inputs;  // tensors
  int output = -1;
};

struct LoweredNorm {
  int node = -1;
  int tensor = -1;
};

// (samples, channels) factors in fp32, read from `source`, a 1 x 1 x C tensor.
struct LoweredFactor {
  int source = -1;
  int64_t channels = 0;
};

struct LoweredDepth {
  int node = -1;
  float rate = 0.0f;
};

struct Lowered {
  const nn::Model* model = nullptr;    // outlives this
  std::vector<LoweredTensor> tensors;  // 0: the input
  std::vector<LoweredOp> ops;          // in the model's order
  std::vector<LoweredNorm> norms;
  std::vector<LoweredFactor> factors;
  std::vector<LoweredDepth> depths;
  int logits = -1;  // tensor
};

struct LoweringOptions {
  bool training = true;  // evaluation drops nothing: no dropout, no stochastic depth
  bool store = false;    // store every transformed value instead of recomputing it on load
};

Lowered lower(const nn::Model& model, const LoweringOptions& options);

}  // namespace tri::exec
