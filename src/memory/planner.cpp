#include "memory/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "memory/packing.h"

namespace tri::memory {
namespace {

constexpr size_t kMostBytes = size_t{1} << 62;  // sums and alignment stay below 2^64
constexpr size_t kNamed = 8;                    // buffers that a refusal spells out

size_t index(BufferId id) { return static_cast<size_t>(id); }

size_t occupied(const Request& request) {
  return (request.bytes + request.alignment - 1) & ~(request.alignment - 1);
}

// What is alive at the fullest tick. Of buffers that share bytes the last written one counts.
void find_worst(const std::vector<Request>& requests, const std::vector<size_t>& block_of,
                const std::vector<Block>& blocks, Plan& plan) {
  const auto most = std::max_element(plan.live_bytes.begin(), plan.live_bytes.end());
  plan.lower_bound = *most;
  plan.worst_tick = static_cast<Tick>(most - plan.live_bytes.begin());
  constexpr auto kNobody = static_cast<size_t>(-1);
  std::vector<size_t> owner(blocks.size(), kNobody);
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].first > plan.worst_tick || requests[i].last < plan.worst_tick) continue;
    size_t& held = owner[block_of[i]];
    if (held == kNobody || requests[i].first >= requests[held].first) held = i;
  }
  for (size_t b = 0; b < blocks.size(); ++b) {
    if (owner[b] == kNobody) continue;
    plan.worst.push_back(static_cast<BufferId>(owner[b]));
    plan.worst_by_kind[requests[owner[b]].kind] += blocks[b].bytes;
  }
  std::stable_sort(plan.worst.begin(), plan.worst.end(), [&](BufferId a, BufferId b) {
    return blocks[block_of[index(a)]].bytes > blocks[block_of[index(b)]].bytes;
  });
}

}  // namespace

BufferId Planner::add(Request request) {
  TRI_CHECK(request.bytes > 0, "buffer {}", request.name);
  TRI_CHECK(std::has_single_bit(request.alignment) && request.alignment < kMostBytes,
            "buffer {}: alignment {}", request.name, request.alignment);
  TRI_CHECK(request.first <= request.last && request.last < kMostTicks, "buffer {}: ticks {} to {}",
            request.name, request.first, request.last);
  TRI_CHECK(request.bytes < kMostBytes && occupied(request) < kMostBytes - total_bytes_,
            "buffer {}: {} bytes after {}", request.name, request.bytes, total_bytes_);
  total_bytes_ += occupied(request);
  const auto id = static_cast<BufferId>(requests_.size());
  requests_.push_back(std::move(request));
  source_.push_back(id);
  overwritten_.push_back(false);
  return id;
}

void Planner::share(BufferId source, BufferId result) {
  TRI_CHECK(index(source) < size() && index(result) < size() && source != result);
  const Request &from = request(source), &to = request(result);
  TRI_CHECK(to.first == from.last, "{} ends at {}, {} begins at {}", from.name, from.last, to.name,
            to.first);
  TRI_CHECK(to.bytes <= from.bytes && to.alignment <= from.alignment, "{} does not hold {}",
            from.name, to.name);
  TRI_CHECK(!overwritten_[index(source)], "{} is overwritten twice", from.name);
  TRI_CHECK(source_[index(result)] == result, "{} overwrites two buffers", to.name);
  BufferId root = source;
  while (source_[index(root)] != root) root = source_[index(root)];
  TRI_CHECK(root != result, "{} and {} overwrite each other", from.name, to.name);
  overwritten_[index(source)] = true;
  source_[index(result)] = source;
}

Plan Planner::solve() const {
  Plan plan;
  if (requests_.empty()) return plan;
  // One block for each chain of shares: it has the size of its first buffer and lives through all.
  std::vector<Block> blocks;
  std::vector<size_t> block_of(size());
  std::vector<BufferId> roots = source_;
  for (size_t i = 0; i < size(); ++i) {
    if (index(source_[i]) == i) {
      block_of[i] = blocks.size();
      blocks.push_back({occupied(requests_[i]), requests_[i].alignment, requests_[i].first,
                        requests_[i].last, requests_[i].end == End::kTransient});
    }
    while (roots[index(roots[i])] != roots[i]) roots[i] = roots[index(roots[i])];
  }
  for (size_t i = 0; i < size(); ++i) {
    block_of[i] = block_of[index(roots[i])];
    Block& block = blocks[block_of[i]];
    block.last = std::max(block.last, requests_[i].last);
    block.from_top = block.from_top && requests_[i].end == End::kTransient;
  }

  plan.live_bytes = live_bytes(blocks);
  find_worst(requests_, block_of, blocks, plan);
  const Packed packed = pack(blocks, plan.live_bytes);
  plan.arena_bytes = packed.arena_bytes;
  for (const size_t block : block_of) plan.offsets.push_back(packed.offsets[block]);
  return plan;
}

Result<Plan> Planner::solve(size_t budget_bytes) const {
  Plan plan = solve();
  if (plan.arena_bytes <= budget_bytes) return plan;
  std::string names;
  for (size_t i = 0; i < std::min(kNamed, plan.worst.size()); ++i) {
    const Request& held = request(plan.worst[i]);
    names += fmt::format("{}{} ({} bytes)", i == 0 ? "" : ", ", held.name, held.bytes);
  }
  if (plan.worst.size() > kNamed) {
    names += fmt::format(" and {} smaller ones", plan.worst.size() - kNamed);
  }
  return unexpected(
      ErrorCode::kDoesNotFit,
      fmt::format("the plan needs {} bytes, the budget is {}; alive at tick {}: {}; use a smaller "
                  "batch or a larger budget",
                  plan.arena_bytes, budget_bytes, plan.worst_tick, names));
}

}  // namespace tri::memory
