#pragma once
// Room: train. The bytes a process may hold, and whether a run stays below them. In: --memory, the
// machine's limits, the engine's forecast. Out: a number, or the table that says why it is too
// small. Starts nothing.
#include <cstddef>
#include <cstdint>
#include <string>

#include "exec/engine.h"
#include "memory/probes.h"
#include "tri/result.h"

namespace tri::train {

// What `text`, a value of --memory, comes to. `auto` is nine tenths of the smallest limit that is
// known, so that the machine stays usable; a share is of that limit. Fails with kInvalid where a
// limit is needed and none is known.
Result<uint64_t> ceiling_bytes(const std::string& text, const memory::Probes& probes);

// What a process holds at its peak.
struct Need {
  uint64_t base_bytes = 0;    // held before the engine takes its memory
  uint64_t engine_bytes = 0;  // the engine's peak
  uint64_t data_bytes = 0;    // images that wait to be used
  uint64_t pieces_bytes = 0;  // of weights on their way from or to a file, an image being decoded,
                              // and small things

  uint64_t total() const { return base_bytes + engine_bytes + data_bytes + pieces_bytes; }
};
uint64_t pieces_bytes(const exec::Parameters& parameters);

// Memory that the decoder of one image may take, by the value of --data: folders hold progressive
// JPEG and interlaced PNG, which lie in memory as a whole. More of them fit a larger ceiling; those
// that do not are skipped and counted.
uint64_t decode_bytes(const std::string& data, uint64_t ceiling);

// Why a run cannot be, and what needs how much. `advice`: what to do about it.
Error does_not_fit(const Need& need, uint64_t ceiling, const std::string& advice);

}  // namespace tri::train
