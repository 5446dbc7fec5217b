#pragma once
// Room: data. The door to the engine: one batch as views of memory that the caller planned.
#include <cstddef>
#include <cstdint>
#include <span>

namespace tri::data {

// Where a batch is written. Each span has room for the largest batch.
struct BatchSlots {
  std::span<float> x;
  std::span<int32_t> labels;
  std::span<uint64_t> ids;
};

// A filled batch; valid until its slots are written again.
struct Batch {
  std::span<const float> x;         // (N, H, W, C)
  std::span<const int32_t> labels;  // (N)
  std::span<const uint64_t> ids;    // (N): sample_id(), for counters of dropout and the like
  uint64_t first = 0;               // position of the first sample in the stream

  size_t size() const { return labels.size(); }
};

}  // namespace tri::data
