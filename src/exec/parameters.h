#pragma once
// Room: exec. The persistent region: every parameter with its optimizer state, and the running
// statistics, as the kernels want them in memory. The only place that turns PyTorch's order into
// ours and back. Plans its bytes before it has any; owns none.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "memory/kind.h"
#include "nn/model.h"
#include "numeric/format.h"
#include "ops/conv2d/conv_geometry.h"
#include "ops/rows/weights.h"
#include "optim/storage.h"
#include "optim/update.h"

namespace tri::exec {

struct StorageForms {
  optim::WeightForm weights = optim::WeightForm::kF32;  // of conv2d and linear weights
  optim::StateForm state = optim::StateForm::kF32;
  size_t moments = 1;  // of the update rule; 0: no state at all
};

struct ParameterSlot {
  int node = -1;               // that uses it
  bool dense = false;          // conv2d or linear weight: stored in panels, in the chosen forms
  ops::ConvGeometry geometry;  // if dense
  optim::WeightForm weight_form = optim::WeightForm::kF32;
  optim::StateForm state_form = optim::StateForm::kF32;
  size_t count = 0;  // elements as stored, padding included
  size_t weight_offset = 0, weight_bytes = 0, state_offset = 0, state_bytes = 0;
  optim::ParamStorage storage;  // after bind()
};

struct RunningSlot {
  int node = -1;  // a batch norm
  int64_t channels = 0;
  size_t offset = 0;  // mean, then variance
};

class Parameters {
 public:
  Parameters(const nn::Model& model, const StorageForms& forms);

  size_t bytes() const { return bytes_; }
  const memory::KindBytes& by_kind() const { return by_kind_; }

  // REQUIRES: bytes() bytes, aligned to 64, that outlive this. Running statistics start at 0 and 1.
  void bind(std::byte* region);

  size_t size() const { return slots_.size(); }
  const ParameterSlot& slot(size_t index) const { return slots_[index]; }
  const nn::Model& model() const { return *model_; }

  // A parameter passes in and out in pieces, so that no copy of the whole is ever needed: runs of
  // elements in PyTorch's order, piece after piece.
  struct Piece {
    size_t first = 0, count = 0;
  };
  size_t pieces(size_t index) const;
  Piece piece(size_t index, size_t which) const;
  size_t largest_piece() const;  // elements, padding included
  // REQUIRES: values.size() == piece(index, which).count. `room` grows to what a piece needs.
  void set_piece(size_t index, size_t which, std::span<const float> values,
                 std::vector<float>& room);
  void get_piece(size_t index, size_t which, std::span<float> values,
                 std::vector<float>& room) const;
  // Zeroes weights and state.
  void clear(size_t index);

  // The whole parameter. REQUIRES: values.size() == its elements. set() clears the state.
  void set(size_t index, std::span<const float> values);
  void get(size_t index, std::span<float> values) const;

  // As kernels read it.
  ops::Weights weights(size_t index, numeric::Format working) const;
  // A bias or a norm parameter: padded to 32 numbers.
  const float* vector(size_t index) const;

  std::span<float> running_mean(int node) const { return running(node, 0); }
  std::span<float> running_variance(int node) const { return running(node, 1); }

 private:
  std::span<float> running(int node, int64_t which) const;

  const nn::Model* model_;
  size_t moments_;
  std::vector<ParameterSlot> slots_;
  std::vector<RunningSlot> running_;
  std::vector<int> running_of_node_;
  memory::KindBytes by_kind_;
  size_t bytes_ = 0;
  std::byte* region_ = nullptr;
};

}  // namespace tri::exec
