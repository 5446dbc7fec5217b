#pragma once
// Room: ops. Cuts a worker's scratch into arrays of floats, each on a cache line of its own.
#include <cstddef>
#include <cstdint>

#include "base/ceil_div.h"

namespace tri::ops {

inline size_t padded_bytes(int64_t floats) {
  return static_cast<size_t>(base::ceil_div(floats, 16) * 64);
}

class ScratchFloats {
 public:
  explicit ScratchFloats(std::byte* memory) : rest_(memory) {}
  float* take(int64_t floats) {
    auto* part = reinterpret_cast<float*>(rest_);
    rest_ += padded_bytes(floats);
    return part;
  }
  std::byte* rest() const { return rest_; }

 private:
  std::byte* rest_;
};

}  // namespace tri::ops
