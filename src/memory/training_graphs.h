#pragma once
// Room: memory, for its tests and benches. In: a family of networks and a stream of numbers.
// Out: the requests of one training step of such a network, as exec makes them: op i runs forward
// at tick i and backward at tick 2n-1-i.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "memory/planner.h"

namespace tri::memory {

enum class Family { kResnet, kMobilenet, kDensenet, kRandom };

// Any number in [low, high].
using Draw = std::function<uint32_t(uint32_t low, uint32_t high)>;

class TrainingGraph {
 public:
  TrainingGraph(Family family, size_t most_ops, Draw draw) : draw_(std::move(draw)) {
    batch_ = draw_(1, 64);
    width_ = draw_(4, 64);
    side_ = 1U << draw_(3, 6);
    const uint32_t stage_blocks = draw_(1, 6);
    uint32_t at = op("stem", {}, width_, kConv);
    for (uint32_t block = 1; ops_.size() < most_ops; ++block) {
      const bool next_stage = block % stage_blocks == 0;
      if (next_stage && side_ > 2) side_ /= 2, width_ *= 2;
      if (family == Family::kResnet) at = residual_block(at, next_stage);
      if (family == Family::kMobilenet) at = inverted_block(at, next_stage);
      if (family == Family::kDensenet) at = dense_block(at, next_stage);
      if (family == Family::kRandom) at = random_block(at);
    }
    side_ = 1;
    op("head", {at}, 10, kConv);
  }

  Planner planner() const {
    Planner planner;
    const auto n = static_cast<uint32_t>(ops_.size());
    const auto backward = [&](uint32_t i) { return 2 * n - 1 - i; };
    std::vector<BufferId> gradients(n);
    for (uint32_t i = 0; i < n; ++i) {
      const Op& op = ops_[i];
      uint32_t last_use = i, saved_until = op.keeps_output ? backward(i) : i, turn = backward(i);
      for (uint32_t user = i + 1; user < n; ++user) {
        if (std::count(ops_[user].inputs.begin(), ops_[user].inputs.end(), i) == 0) continue;
        last_use = user;
        turn = std::min(turn, backward(user));
        if (ops_[user].keeps_input) saved_until = std::max(saved_until, backward(user));
      }
      const bool saved = saved_until > i;
      planner.add({.name = op.name,
                   .bytes = op.bytes,
                   .first = i,
                   .last = std::max(saved_until, last_use),
                   .kind = Kind::kActivations,
                   .end = saved ? End::kSaved : End::kTransient});
      gradients[i] = planner.add({.name = op.name + ".gradient",
                                  .bytes = op.bytes,
                                  .first = turn,
                                  .last = backward(i),
                                  .kind = Kind::kGradients});
      if (op.scratch > 0) {
        planner.add({.name = op.name + ".pack", .bytes = op.scratch, .first = i, .last = i});
        planner.add({.name = op.name + ".unpack",
                     .bytes = 2 * op.scratch,
                     .first = backward(i),
                     .last = backward(i)});
      }
    }
    // An add hands its gradient on: its first input's gradient is written over it, if only the add
    // reads that input.
    for (uint32_t i = 0; i < n; ++i) {
      if (!ops_[i].in_place) continue;
      const BufferId source = gradients[i], result = gradients[ops_[i].inputs[0]];
      if (planner.request(source).last == planner.request(result).first &&
          planner.request(source).bytes == planner.request(result).bytes) {
        planner.share(source, result);
      }
    }
    return planner;
  }

 private:
  struct Op {
    std::string name;
    std::vector<uint32_t> inputs;
    size_t bytes = 0, scratch = 0;
    bool keeps_output = false, keeps_input = false, in_place = false;
  };
  enum Type { kConv, kAdd, kConcat, kPool };

  uint32_t op(const char* kind, std::vector<uint32_t> inputs, uint32_t channels, Type type) {
    const auto i = static_cast<uint32_t>(ops_.size());
    const size_t element = size_t{1} << draw_(0, 2);
    ops_.push_back({.name = fmt::format("{}.{}", kind, i),
                    .inputs = std::move(inputs),
                    .bytes = batch_ * side_ * side_ * channels * element,
                    .scratch = type == kConv ? draw_(0, 1 << 18) : 0U,
                    .keeps_output = type != kPool && type != kConcat,
                    .keeps_input = type == kConv,
                    .in_place = type == kAdd});
    return i;
  }

  uint32_t residual_block(uint32_t at, bool next_stage) {
    const uint32_t inner = op("conv", {at}, width_, kConv);
    const uint32_t main = op("conv", {inner}, width_, kConv);
    if (next_stage) at = op("projection", {at}, width_, kConv);
    return op("add", {main, at}, width_, kAdd);
  }

  uint32_t inverted_block(uint32_t at, bool next_stage) {
    const uint32_t wide = width_ * draw_(1, 6);
    const uint32_t expanded = op("expand", {at}, wide, kConv);
    const uint32_t filtered = op("depthwise", {expanded}, wide, kConv);
    const uint32_t side = side_;
    side_ = 1;
    const uint32_t pooled = op("squeeze", {filtered}, wide, kPool);
    const uint32_t excited = op("excite", {pooled}, wide, kConv);
    side_ = side;
    const uint32_t scaled = op("scale", {filtered, excited}, wide, kPool);
    const uint32_t main = op("project", {scaled}, width_, kConv);
    return next_stage ? main : op("add", {main, at}, width_, kAdd);
  }

  uint32_t dense_block(uint32_t at, bool next_stage) {
    const uint32_t growth = draw_(8, 32);
    if (next_stage) {
      dense_ = width_ / 2;
      at = op("transition", {at}, dense_, kConv);
    }
    const uint32_t bottleneck = op("bottleneck", {at}, 4 * growth, kConv);
    const uint32_t grown = op("grow", {bottleneck}, growth, kConv);
    dense_ += growth;
    return op("concat", {at, grown}, dense_, kConcat);
  }

  uint32_t random_block(uint32_t at) {
    const uint32_t next = op("conv", {at}, draw_(1, 4 * width_), kConv);
    const auto types = {kConv, kAdd, kConcat, kPool};
    const Type type = *(types.begin() + draw_(0, 3));
    return op("join", {next, draw_(at > 8 ? at - 8 : 0, at)}, draw_(1, 2 * width_), type);
  }

  Draw draw_;
  std::vector<Op> ops_;
  uint32_t batch_ = 1, width_ = 1, side_ = 1, dense_ = 16;
};

}  // namespace tri::memory
