#pragma once
// Room: memory. In: sizes and lifetimes. Out: offsets in one arena. Owns no bytes and knows no
// tensor, layer or dtype, so it can plan a network that this machine could never hold.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "memory/kind.h"
#include "tri/result.h"

namespace tri::memory {

// Position in the order of one training step: forward, then backward with its in-place updates.
// Two buffers may share bytes iff their [first, last] ranges are disjoint. Ticks are dense: a plan
// keeps one number per tick.
using Tick = uint32_t;
inline constexpr Tick kMostTicks = 1U << 20;

// Where a buffer likes to lie. Only a preference: both ends may use any hole.
enum class End {
  kSaved,      // written forward, released backward in reverse order: a stack from the bottom
  kTransient,  // short-lived (gradients of activations, scratch): from the top
};

struct Request {
  std::string name;       // for reports; never a key
  size_t bytes = 0;       // > 0; occupies this rounded up to the alignment
  size_t alignment = 64;  // power of two
  Tick first = 0;         // the tick that writes it
  Tick last = 0;          // the last tick that reads it; >= first, < kMostTicks
  Kind kind = Kind::kScratch;
  End end = End::kTransient;
};

enum class BufferId : uint32_t {};  // index into Plan::offsets, in the order of add()

struct Plan {
  std::vector<size_t> offsets;
  size_t arena_bytes = 0;          // what one allocation must provide
  size_t lower_bound = 0;          // most bytes alive at one tick; no plan can be smaller
  std::vector<size_t> live_bytes;  // by tick; bytes that two buffers share count once
  Tick worst_tick = 0;             // the first tick with live_bytes == lower_bound
  std::vector<BufferId> worst;     // alive at worst_tick, largest first, one per shared bytes
  KindBytes worst_by_kind;         // the same, summed; total() == lower_bound

  size_t offset(BufferId id) const { return offsets[static_cast<size_t>(id)]; }
  bool operator==(const Plan&) const = default;
};

// Fits everything under lower_bound where it can: saved buffers as a stack from the bottom,
// transients from the top, those alive at full ticks first. What does not fit goes to the front of
// the line and all is placed anew, until everything fits or a fixed effort is spent; the best plan
// wins. Greedy, because the batch policy solves it once per candidate batch size and must not stall
// a step: about 1 ms for 1000 buffers. planner_test.cpp watches the distance to lower_bound.
// Not thread-safe.
class Planner {
 public:
  // REQUIRES: the field rules of Request; all bytes together below 2^62. A breach is the caller's
  // bug and aborts.
  BufferId add(Request request);

  // Lets `result` overwrite `source`, as relu or a weight update does; both then have one offset.
  // A result may be the source of a next one.
  // REQUIRES: result.first == source.last; result.bytes <= source.bytes and result.alignment <=
  // source.alignment; no buffer has two results or two sources.
  void share(BufferId source, BufferId result);

  size_t size() const { return requests_.size(); }
  const Request& request(BufferId id) const { return requests_[static_cast<size_t>(id)]; }

  // ENSURES: equal requests in equal order give equal plans on every machine.
  Plan solve() const;

  // Fails with kDoesNotFit if the plan needs more, naming the buffers alive at the worst tick. That
  // is an answer, not an accident: the caller tries a smaller batch.
  Result<Plan> solve(size_t budget_bytes) const;

 private:
  std::vector<Request> requests_;
  std::vector<BufferId> source_;   // whose bytes a buffer overwrites; itself if none
  std::vector<bool> overwritten_;  // is already the source of a share
  size_t total_bytes_ = 0;
};

}  // namespace tri::memory
