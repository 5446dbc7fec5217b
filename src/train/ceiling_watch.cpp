#include "train/ceiling_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "train/ceiling.h"

namespace tri::train {
namespace {

constexpr int64_t kBetweenLooks = 1'000'000'000;
// Room that others keep: above this share of a limit a run gives way.
constexpr double kShareOfLimit = 0.9;
// A ceiling that follows every breath of the machine would move all the time.
constexpr double kNoticed = 0.05;

// Limits that other programs and administrators move while a run goes on. memory.max and RLIMIT_AS
// are not among them: the first kills before anybody could look, the second bounds addresses.
bool moves(memory::Limit::Source source) {
  return source == memory::Limit::Source::kCgroupHigh ||
         source == memory::Limit::Source::kAvailable;
}

}  // namespace

CeilingWatch::Outer CeilingWatch::outer_limit() const {
  Outer outer;
  for (const memory::Limit& limit : probes_.limits().all) {
    if (limit.state != memory::Limit::State::kBytes || !moves(limit.source)) continue;
    const auto bytes = static_cast<uint64_t>(kShareOfLimit * static_cast<double>(limit.bytes));
    if (bytes < outer.bytes) {
      outer = {bytes, fmt::format("{} allows {}", memory::name(limit.source),
                                  base::format_bytes(limit.bytes))};
    }
  }
  return outer;
}

std::optional<CeilingMove> CeilingWatch::move_to(uint64_t bytes, std::string reason) {
  if (bytes == now_) return std::nullopt;
  now_ = bytes;
  return CeilingMove{bytes, std::move(reason)};
}

std::optional<CeilingMove> CeilingWatch::poll(int64_t now_ns) {
  if (const std::optional<Request> request = requests_.poll()) {
    if (const Result<uint64_t> bytes = ceiling_bytes(request->memory, probes_)) {
      asked_ = *bytes;
      return move_to(*bytes, fmt::format("'triaccel set memory={}'", request->memory));
    }
  }
  if (looked_ns_ != 0 && now_ns - looked_ns_ < kBetweenLooks) return std::nullopt;
  looked_ns_ = now_ns;
  const Outer outer = outer_limit();
  if (outer.bytes >= asked_) {
    // What had pressed is gone.
    return move_to(asked_, "other programs left room again");
  }
  const double change = static_cast<double>(outer.bytes) / static_cast<double>(now_) - 1;
  if (std::abs(change) < kNoticed) return std::nullopt;
  return move_to(outer.bytes, outer.reason);
}

}  // namespace tri::train
