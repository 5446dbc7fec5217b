#pragma once
// Room: data. Samples form one endless stream of epochs. A position in it says which sample comes
// there, in no memory and in any order of asking; so a run continues from a position alone.
#include <cstdint>

#include "base/check.h"
#include "base/permutation.h"

namespace tri::data {

struct Sample {
  uint64_t epoch = 0;
  uint64_t index = 0;  // of the record in its Source
  bool operator==(const Sample&) const = default;
};

// One number for a sample, for counters of dropout and the like.
// REQUIRES: epoch < 2^24, index < 2^40.
constexpr uint64_t sample_id(Sample sample) { return sample.epoch << 40 | sample.index; }

class SampleOrder {
 public:
  // Every epoch in an order of its own.
  static SampleOrder shuffled(uint64_t count, uint64_t seed) { return {count, seed, true}; }
  // One epoch in the order of the files, as evaluation reads it.
  static SampleOrder once(uint64_t count) { return {count, 0, false}; }

  // The number of positions: without end when shuffled.
  uint64_t end() const { return shuffled_ ? UINT64_MAX : count_; }

  // REQUIRES: position < end().
  Sample at(uint64_t position) const {
    TRI_DCHECK(position < end(), "position = {}", position);
    const Sample plain{position / count_, position % count_};
    if (!shuffled_) return plain;
    return {plain.epoch, base::Permutation(count_, seed_, plain.epoch)(plain.index)};
  }

 private:
  SampleOrder(uint64_t count, uint64_t seed, bool shuffled)
      : count_(count), seed_(seed), shuffled_(shuffled) {
    TRI_CHECK(count >= 1 && count < uint64_t{1} << 40, "count = {}", count);
  }

  uint64_t count_, seed_;
  bool shuffled_;
};

}  // namespace tri::data
