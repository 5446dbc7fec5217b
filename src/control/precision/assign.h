#pragma once
// Room: control. Paper (c): every tensor of training gets a high (16-bit, 1-6-9) or a low (8-bit)
// format before training; tensors that overflow are promoted for good. In: the operations of a
// network as plain counts. Out: which tensors are low, (c)'s own measure of memory, and the rows of
// the precision table.
//
// Tensors of an operation: P its parameters, Y its output, GY and GP their gradients. Inputs are
// other operations' outputs and not counted again. All operations count, also those whose output
// our engine never stores.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "control/precision_table.h"

namespace tri::control {

struct AssignOp {
  enum class Kind : uint8_t {
    kInput,  // its output has no gradient
    kGemm,   // convolution or linear
    kOther,
  };
  Kind kind = Kind::kOther;
  int64_t params = 0;
  int64_t y_elements = 0;        // per sample
  std::vector<int> inputs = {};  // operations before this one
  int layer = -1;                // row of the precision table
  bool stored = false;  // whether the engine keeps Y: then it is stored in the row's format
};

enum class AssignmentOrder : uint8_t { kDescending, kAscending, kRandom };

struct AssignSettings {
  double low_share = 0;  // R: groups are demoted until they hold at least this share of elements
  AssignmentOrder order = AssignmentOrder::kDescending;
  uint64_t seed = 0;  // of the random order
};

// True: in the low format. GP is always 1-6-9.
struct LowTensors {
  bool p = false, y = false, gy = false;
  bool denied = false;  // a promotion that did not fit has been told of
  bool operator==(const LowTensors&) const = default;
};
using Assignment = std::vector<LowTensors>;  // by operation

// A group begins at every input and GEMM and takes in what follows in order; it is what shares one
// precision. It owns Y and GY of its operations, and P and GP of those that read from it first.
std::vector<int> groups_of(std::span<const AssignOp> ops);
// Of P an operation belongs to: that of its first input.
std::vector<int> parameter_groups_of(std::span<const AssignOp> ops);
// Elements of each group's tensors in a batch.
std::vector<int64_t> group_elements(std::span<const AssignOp> ops, int64_t batch);

Assignment assign(std::span<const AssignOp> ops, int64_t batch, const AssignSettings& settings);
// By operator, after HFP8: only operands of GEMMs are low, not those of the first layer, the last
// layer and all else.
Assignment assign_hfp8(std::span<const AssignOp> ops);

// (c)'s measure: the bits of all tensors, alive or not.
uint64_t tensor_bits(std::span<const AssignOp> ops, int64_t batch, const Assignment& assignment);
// (c)'s ratio: twice the share of bits saved against all high; 0: all high.
double low_ratio(std::span<const AssignOp> ops, int64_t batch, const Assignment& assignment);

// Rows of the weight layers. A row's outputs are low if all that are stored are.
PrecisionTable table_of(std::span<const AssignOp> ops, const Assignment& assignment, size_t layers);

}  // namespace tri::control
