#pragma once
// Room: train. One pass over a source with frozen weights. In: an engine and a source. Out: how
// often the network is right. Borrows the ring of the loader, which must not run meanwhile.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "data/dataset.h"
#include "data/normalise.h"
#include "data/source.h"
#include "exec/engine.h"
#include "tri/result.h"

namespace tri::train {

struct Judgement {
  uint64_t count = 0;
  double loss = 0;  // mean
  double accuracy = 0, top5 = 0;
  std::vector<uint64_t> confusion;  // (true class, predicted class); empty if not asked for
};

// Of a loader's ring that serves every part of `set` in batches of `samples`.
size_t ring_bytes(const data::Dataset& set, int64_t samples);

struct EvaluationRooms {
  exec::Engine& engine;
  base::ThreadPool& pool;
  std::span<std::byte> ring;  // of data::Loader::ring_bytes() for the engine's batch
};

// REQUIRES: the source has no more classes than the network.
Result<Judgement> evaluate(const EvaluationRooms& rooms, std::shared_ptr<const data::Source> source,
                           const data::Normalisation& normalisation, bool confusion = false);

}  // namespace tri::train
