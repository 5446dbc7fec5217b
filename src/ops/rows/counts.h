#pragma once
// Room: ops. Adds up what the tiles of one pass lost; sums of integers do not depend on the order.
#include <atomic>
#include <bit>

#include "ops/rows/rows.h"

namespace tri::ops {

class CountSum {
 public:
  void add(const StoreCounts& counts) {
    if (counts.overflow != 0) overflow_.fetch_add(counts.overflow, std::memory_order_relaxed);
    if (counts.underflow != 0) underflow_.fetch_add(counts.underflow, std::memory_order_relaxed);
    // Numbers that are not negative are ordered as their bits are.
    const auto bits = std::bit_cast<uint32_t>(counts.max_abs);
    uint32_t most = max_abs_.load(std::memory_order_relaxed);
    while (bits > most && !max_abs_.compare_exchange_weak(most, bits, std::memory_order_relaxed)) {
    }
  }
  StoreCounts total() const {
    return {overflow_.load(), underflow_.load(), std::bit_cast<float>(max_abs_.load())};
  }

 private:
  std::atomic<uint64_t> overflow_ = 0, underflow_ = 0;
  std::atomic<uint32_t> max_abs_ = 0;
};

}  // namespace tri::ops
