#include "exec/parameters.h"

#include <algorithm>

#include "base/check.h"

namespace tri::exec {
namespace {

size_t padded(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

Parameters::Parameters(const nn::Model& model, const StorageForms& forms)
    : model_(&model),
      moments_(forms.moments),
      slots_(model.parameters.size()),
      running_of_node_(model.nodes.size(), -1) {
  using ops::OpKind;
  for (size_t n = 0; n < model.nodes.size(); ++n) {
    const nn::Node& node = model.nodes[n];
    for (const int index : {node.weight, node.bias})
      if (index >= 0) slots_[static_cast<size_t>(index)].node = static_cast<int>(n);
    if (node.weight >= 0 && node.kind != OpKind::kBatchNorm) {
      ParameterSlot& slot = slots_[static_cast<size_t>(node.weight)];
      const tensor::Shape& in = model.nodes[static_cast<size_t>(node.inputs[0])].shape;
      slot.dense = true;
      slot.geometry = node.kind == OpKind::kLinear ? ops::linear_geometry(node.attr, in)
                                                   : ops::conv_geometry(node.attr, in, node.shape);
    }
    if (node.kind == OpKind::kBatchNorm) {
      running_of_node_[n] = static_cast<int>(running_.size());
      running_.push_back({static_cast<int>(n), node.shape.c, 0});
    }
  }
  const auto take = [this](memory::Kind kind, size_t bytes) {
    const size_t offset = bytes_;
    bytes_ += bytes;
    by_kind_[kind] += bytes;
    return offset;
  };
  for (size_t i = 0; i < slots_.size(); ++i) {
    ParameterSlot& slot = slots_[i];
    slot.count = slot.dense ? static_cast<size_t>(slot.geometry.weight_count())
                            : static_cast<size_t>(model.parameters[i].elements() + 31) / 32 * 32;
    if (slot.dense) {
      slot.weight_form = forms.weights;
      slot.state_form = forms.state;
    }
    slot.weight_bytes = optim::weight_bytes(slot.weight_form, slot.count);
    slot.weight_offset = take(memory::Kind::kWeights, slot.weight_bytes);
    if (forms.moments > 0) {
      slot.state_bytes = optim::state_bytes(slot.state_form, slot.count, forms.moments);
      slot.state_offset = take(memory::Kind::kState, slot.state_bytes);
    }
  }
  for (RunningSlot& slot : running_)
    slot.offset = take(memory::Kind::kWeights,
                       padded(2 * static_cast<size_t>(slot.channels) * sizeof(float)));
}

void Parameters::bind(std::byte* region) {
  region_ = region;
  for (ParameterSlot& slot : slots_) {
    slot.storage = optim::bind(slot.weight_form, slot.state_form, slot.count, moments_,
                               region + slot.weight_offset,
                               slot.state_bytes == 0 ? nullptr : region + slot.state_offset);
  }
  for (const RunningSlot& slot : running_) {
    std::ranges::fill(running_mean(slot.node), 0.0f);
    std::ranges::fill(running_variance(slot.node), 1.0f);
  }
}

size_t Parameters::pieces(size_t index) const {
  return slots_[index].dense ? ops::weight_pieces(slots_[index].geometry) : 1;
}

Parameters::Piece Parameters::piece(size_t index, size_t which) const {
  if (!slots_[index].dense) return {0, static_cast<size_t>(model_->parameters[index].elements())};
  const ops::WeightPiece piece = ops::weight_piece(slots_[index].geometry, which);
  return {static_cast<size_t>(piece.oihw), static_cast<size_t>(piece.count)};
}

size_t Parameters::largest_piece() const {
  size_t most = 0;
  for (const ParameterSlot& slot : slots_)
    most =
        std::max(most, slot.dense ? static_cast<size_t>(ops::weight_piece(slot.geometry, 0).padded)
                                  : slot.count);
  return most;
}

void Parameters::set_piece(size_t index, size_t which, std::span<const float> values,
                           std::vector<float>& room) {
  const ParameterSlot& slot = slots_[index];
  TRI_CHECK(values.size() == piece(index, which).count);
  if (!slot.dense) return optim::write_weights(slot.storage, 0, values);
  const ops::WeightPiece piece = ops::weight_piece(slot.geometry, which);
  room.resize(static_cast<size_t>(piece.padded));
  ops::pack_piece(slot.geometry, which, values.data(), room.data());
  optim::write_weights(slot.storage, static_cast<size_t>(piece.stored), room);
}

void Parameters::get_piece(size_t index, size_t which, std::span<float> values,
                           std::vector<float>& room) const {
  const ParameterSlot& slot = slots_[index];
  TRI_CHECK(values.size() == piece(index, which).count);
  if (!slot.dense) return optim::read_weights(slot.storage, 0, values);
  const ops::WeightPiece piece = ops::weight_piece(slot.geometry, which);
  room.resize(static_cast<size_t>(piece.padded));
  optim::read_weights(slot.storage, static_cast<size_t>(piece.stored), room);
  ops::unpack_piece(slot.geometry, which, room.data(), values.data());
}

void Parameters::clear(size_t index) { optim::clear_storage(slots_[index].storage); }

void Parameters::set(size_t index, std::span<const float> values) {
  TRI_CHECK(values.size() == static_cast<size_t>(model_->parameters[index].elements()));
  clear(index);
  std::vector<float> room;
  for (size_t i = 0; i < pieces(index); ++i)
    set_piece(index, i, values.subspan(piece(index, i).first, piece(index, i).count), room);
}

void Parameters::get(size_t index, std::span<float> values) const {
  TRI_CHECK(values.size() == static_cast<size_t>(model_->parameters[index].elements()));
  std::vector<float> room;
  for (size_t i = 0; i < pieces(index); ++i)
    get_piece(index, i, values.subspan(piece(index, i).first, piece(index, i).count), room);
}

ops::Weights Parameters::weights(size_t index, numeric::Format working) const {
  const optim::ParamStorage& storage = slots_[index].storage;
  const optim::WorkingWeights main = optim::working_weights(storage);
  ops::Weights weights;
  weights.working = working;
  weights.data = main.data;
  weights.format = main.format;
  if (working != numeric::Format::kF32) return weights;
  // A layer that works in fp32 reads all there is.
  using Remainder = ops::Weights::Remainder;
  weights.data = storage.main;
  switch (storage.weight_form) {
    case optim::WeightForm::kF32:
    case optim::WeightForm::kF32AndBf16:
      weights.format = numeric::Format::kF32;
      break;
    case optim::WeightForm::kBf16x16:
      weights.remainder_kind = Remainder::kBf16x16;
      break;
    case optim::WeightForm::kBf16x8:
      weights.remainder_kind = Remainder::kBf16x8;
      break;
    case optim::WeightForm::kF16x8:
      weights.remainder_kind = Remainder::kF16x8;
      break;
    case optim::WeightForm::kBf16Stochastic:
      break;
  }
  weights.remainder = storage.remainder;
  return weights;
}

const float* Parameters::vector(size_t index) const {
  TRI_DCHECK(!slots_[index].dense);
  return reinterpret_cast<const float*>(slots_[index].storage.main);
}

std::span<float> Parameters::running(int node, int64_t which) const {
  const int at = running_of_node_[static_cast<size_t>(node)];
  TRI_CHECK(at >= 0, "node {} has no running statistics", node);
  const RunningSlot& slot = running_[static_cast<size_t>(at)];
  auto* first = reinterpret_cast<float*>(region_ + slot.offset);
  return {first + which * slot.channels, static_cast<size_t>(slot.channels)};
}

}  // namespace tri::exec
