#pragma once
// Room: memory, inside. Blocks of bytes with lifetimes, placed one after another in the order given
// to it. Knows no names, no kinds and no shares: planner.h translates.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tri::memory {

struct Block {
  size_t bytes = 0;  // a multiple of alignment
  size_t alignment = 1;
  uint32_t first = 0, last = 0;  // ticks, both included
  bool from_top = false;
};

// Bytes alive at each tick, 0 to the last tick of any block.
std::vector<size_t> live_bytes(const std::vector<Block>& blocks);

struct Packed {
  std::vector<size_t> offsets;  // by block
  size_t arena_bytes = 0;
};

// The smallest packing found. REQUIRES: `live` is live_bytes(blocks).
Packed pack(const std::vector<Block>& blocks, const std::vector<size_t>& live);

}  // namespace tri::memory
