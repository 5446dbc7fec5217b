#include "memory/packing.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tri::memory {
namespace {

using Order = std::vector<uint32_t>;

// Work is bounded by counted steps, never by a clock: the plan must not depend on the machine.
// A step is one placed block looked at, about 2 ns.
constexpr size_t kEffort = 1'000'000;
constexpr size_t kRounds = 10;  // from one start; what has not fitted by then seldom does

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
  steps += 4 * blocks.size();  // sorting in, and a round's own work
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

// Both begin with the saved blocks as they are written, the longer-lived below. Then the transients
// that are hardest to move: those that join many ticks, and those at ticks that have no slack.
std::vector<Order> first_orders(const std::vector<Block>& blocks, const std::vector<size_t>& live) {
  const std::vector<size_t> most = fullest(blocks, live);
  const auto order = [&](bool longest_first) {
    Order sorted(blocks.size());
    std::iota(sorted.begin(), sorted.end(), 0U);
    std::stable_sort(sorted.begin(), sorted.end(), [&](uint32_t a, uint32_t b) {
      const Block &lhs = blocks[a], &rhs = blocks[b];
      if (lhs.from_top != rhs.from_top) return rhs.from_top;
      if (!lhs.from_top) return std::pair(lhs.first, rhs.last) < std::pair(rhs.first, lhs.last);
      const uint32_t lhs_life = lhs.last - lhs.first, rhs_life = rhs.last - rhs.first;
      if (longest_first && lhs_life != rhs_life) return lhs_life > rhs_life;
      return std::pair(most[a], lhs.bytes) > std::pair(most[b], rhs.bytes);
    });
    return sorted;
  };
  return {order(true), order(false)};
}

void move_to_front(const Order& failed, Order& order) {
  std::vector<bool> urgent(order.size());
  for (const uint32_t i : failed) urgent[i] = true;
  std::stable_partition(order.begin(), order.end(), [&](uint32_t i) { return !urgent[i]; });
  std::copy(failed.begin(), failed.end(), order.end() - static_cast<ptrdiff_t>(failed.size()));
  std::rotate(order.begin(), order.end() - static_cast<ptrdiff_t>(failed.size()), order.end());
}

// Numbers that are the same everywhere (Knuth's MMIX generator).
struct Dice {
  uint64_t state = 1;
  size_t below(size_t n) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<size_t>(state >> 33) % n;
  }
};

// Moving the failed to the front may run in circles. Another order among them and now and then the
// other end of the arena lead out of it.
void shake(Order& failed, std::vector<Block>& turned, Dice& dice) {
  for (const uint32_t i : failed) {
    if (dice.below(4) == 0) turned[i].from_top = !turned[i].from_top;
  }
  for (size_t k = 1; k < failed.size(); ++k) std::swap(failed[k], failed[dice.below(k + 1)]);
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
  Dice dice;
  const std::vector<Order> first = first_orders(blocks, live);
  for (size_t start = 0, spent = 0; spent < kEffort; ++start) {
    // The orders take turns, as the effort may end early in a large plan.
    std::vector<Order> orders = first;
    std::vector<Block> turned = blocks;
    for (size_t round = 0; round < kRounds * orders.size() && spent < kEffort; ++round) {
      Order& order = orders[round % orders.size()];
      Order failed;
      Packed packed = place_all(turned, order, top, failed, spent);
      if (best.offsets.empty() || packed.arena_bytes < best.arena_bytes) best = std::move(packed);
      if (failed.empty()) return best;
      if (start > 0) shake(failed, turned, dice);
      move_to_front(failed, order);
    }
  }
  return best;
}

}  // namespace tri::memory
