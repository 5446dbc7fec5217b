#include "memory/packing.h"

#include <algorithm>
#include <numeric>

namespace tri::memory {
namespace {

using Order = std::vector<uint32_t>;

// Work is bounded by counted steps, never by a clock: the plan must not depend on the machine.
// A step is one placed block looked at, about 1 ns.
constexpr size_t kEffort = 2'000'000;

size_t align_up(size_t offset, size_t alignment) {
  return (offset + alignment - 1) & ~(alignment - 1);
}

// Placed blocks, sorted by offset.
class Shelf {
 public:
  explicit Shelf(size_t blocks) { placed_.reserve(blocks); }

  // The lowest offset that is free for the whole life of `block`.
  size_t lowest_free(const Block& block, size_t& steps) const {
    size_t free = 0;
    for (const Placed& placed : placed_) {
      ++steps;
      if (placed.last < block.first || placed.first > block.last) continue;
      if (free + block.bytes <= placed.offset) break;
      free = std::max(free, align_up(placed.end, block.alignment));
    }
    return free;
  }

  void place(const Block& block, size_t offset, size_t end) {
    const Placed placed{offset, end, block.first, block.last};
    const auto after = [](size_t lhs, const Placed& rhs) { return lhs < rhs.offset; };
    placed_.insert(std::upper_bound(placed_.begin(), placed_.end(), offset, after), placed);
  }

 private:
  struct Placed {
    size_t offset, end;
    uint32_t first, last;
  };
  std::vector<Placed> placed_;
};

// Places the blocks in order. `top` is the height to stay under and a multiple of every alignment:
// the shelf of transients hangs from it, upside down. What does not fit under it goes above it and
// into `failed`.
Packed place_all(const std::vector<Block>& blocks, const Order& order, size_t top, Order& failed,
                 size_t& steps) {
  Packed packed{std::vector<size_t>(blocks.size()), 0};
  Shelf standing(blocks.size()), hanging(blocks.size());
  for (const uint32_t i : order) {
    const Block& block = blocks[i];
    size_t offset = top;
    if (block.from_top) {
      const size_t depth = hanging.lowest_free(block, steps) + block.bytes;
      if (depth <= top) offset = top - depth;
    }
    if (offset == top) offset = standing.lowest_free(block, steps);
    const size_t end = offset + block.bytes;
    standing.place(block, offset, end);
    if (offset < top) hanging.place(block, top - std::min(end, top), top - offset);
    if (end > top) failed.push_back(i);
    packed.offsets[i] = offset;
    packed.arena_bytes = std::max(packed.arena_bytes, end);
  }
  return packed;
}

// For each block, the most bytes alive at any tick of its life.
std::vector<size_t> fullest(const std::vector<Block>& blocks, const std::vector<size_t>& live) {
  // levels[k][t] = most of live[t .. t + 2^k - 1].
  std::vector<std::vector<size_t>> levels{live};
  for (size_t width = 1; 2 * width <= live.size(); width *= 2) {
    const std::vector<size_t>& below = levels.back();
    std::vector<size_t> level(below.size() - width);
    for (size_t t = 0; t < level.size(); ++t) level[t] = std::max(below[t], below[t + width]);
    levels.push_back(std::move(level));
  }
  std::vector<size_t> most(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    const size_t ticks = blocks[i].last - blocks[i].first + 1U;
    size_t level = 0;
    while (size_t{2} << level <= ticks) ++level;
    most[i] = std::max(levels[level][blocks[i].first],
                       levels[level][blocks[i].last + 1U - (size_t{1} << level)]);
  }
  return most;
}

template <class Less>
Order sorted(size_t blocks, const Less& less) {
  Order order(blocks);
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), less);
  return order;
}

std::vector<Order> first_orders(const std::vector<Block>& blocks, const std::vector<size_t>& live) {
  const std::vector<size_t> most = fullest(blocks, live);
  const auto stack_then_fullest = [&](uint32_t a, uint32_t b) {
    const Block &lhs = blocks[a], &rhs = blocks[b];
    if (lhs.from_top != rhs.from_top) return rhs.from_top;
    if (!lhs.from_top) {
      return lhs.first != rhs.first ? lhs.first < rhs.first : lhs.last > rhs.last;
    }
    return most[a] != most[b] ? most[a] > most[b] : lhs.bytes > rhs.bytes;
  };
  const auto largest = [&](uint32_t a, uint32_t b) { return blocks[a].bytes > blocks[b].bytes; };
  const auto longest = [&](uint32_t a, uint32_t b) {
    return blocks[a].last - blocks[a].first > blocks[b].last - blocks[b].first;
  };
  return {sorted(blocks.size(), stack_then_fullest), sorted(blocks.size(), largest),
          sorted(blocks.size(), longest)};
}

}  // namespace

std::vector<size_t> live_bytes(const std::vector<Block>& blocks) {
  size_t ticks = 0;
  for (const Block& block : blocks) ticks = std::max<size_t>(ticks, block.last + 1U);
  // Differences first; unsigned arithmetic wraps and comes back.
  std::vector<size_t> live(ticks + 1);
  for (const Block& block : blocks) {
    live[block.first] += block.bytes;
    live[block.last + 1U] -= block.bytes;
  }
  std::partial_sum(live.begin(), live.end(), live.begin());
  live.pop_back();
  return live;
}

Packed pack(const std::vector<Block>& blocks, const std::vector<size_t>& live) {
  if (blocks.empty()) return {};
  size_t alignment = 1;
  for (const Block& block : blocks) alignment = std::max(alignment, block.alignment);
  const size_t top = align_up(*std::max_element(live.begin(), live.end()), alignment);

  Packed best;
  std::vector<Order> orders = first_orders(blocks, live);
  for (size_t round = 0, spent = 0; spent < kEffort; ++round) {
    for (Order& order : orders) {
      Order failed;
      Packed packed = place_all(blocks, order, top, failed, spent);
      spent += blocks.size();
      if (best.offsets.empty() || packed.arena_bytes < best.arena_bytes) best = std::move(packed);
      if (failed.empty()) return best;
      std::vector<bool> urgent(blocks.size());
      for (const uint32_t i : failed) urgent[i] = true;
      std::stable_partition(order.begin(), order.end(), [&](uint32_t i) { return urgent[i]; });
    }
  }
  return best;
}

}  // namespace tri::memory
