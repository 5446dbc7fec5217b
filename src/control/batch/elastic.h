#pragma once
// Room: control. Paper (a), 3.3: the batch grows while memory is idle and shrinks when it is short.
// In: use against the ceiling, and a function that plans. Out: the next batch and why.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tri::control {

struct ElasticSettings {
  int64_t unit = 1;  // the ghost batch: all sizes are multiples
  int64_t least = 1, most = 1;
  int64_t asked = 0;  // what memory took from this comes back, see elastic_move()
  int64_t delta_up = 1, delta_down = 1;
  double rho_low = 0.7, rho_high = 0.9;
  bool noise_scale = true;   // no growth beyond the gradient noise scale, which buys nothing
  int64_t rest_windows = 4;  // after shrinking, before it may grow again
};

struct MemoryUse {
  uint64_t used_bytes = 0, ceiling_bytes = 0;
  std::optional<double> noise_scale = {};
  bool rescued = false;  // it fits only by means that cost time or bits, see Note [Rungs]
};

using BytesOfBatch = std::function<uint64_t(int64_t batch)>;

struct BatchMove {
  int64_t batch = 0;
  std::string reason;  // empty: it stays
};

// At most one move. `rest`: windows left until the batch may grow; counted down here.
// A batch that was rescued shrinks, step by step, until it needs no rescue. Below `asked` it comes
// back wherever the plan allows, as all rungs do; above, it grows where memory is idle and a larger
// batch buys something.
// ENSURES: a batch that grew is planned within rho_high of the ceiling; one that shrank is planned
// within the ceiling or is the least.
BatchMove elastic_move(const ElasticSettings& settings, int64_t batch, int64_t& rest,
                       const MemoryUse& use, const BytesOfBatch& plan);

// The largest batch <= `from` that is planned within `limit`; none: not even the least.
std::optional<int64_t> largest_fitting(const ElasticSettings& settings, int64_t from,
                                       uint64_t limit_bytes, const BytesOfBatch& plan);

// The least number of equal micro-batches, each a multiple of `unit`, whose plan is within `limit`.
std::optional<int64_t> least_micros(int64_t batch, int64_t unit, uint64_t limit_bytes,
                                    const std::function<uint64_t(int64_t micros)>& plan);

}  // namespace tri::control
