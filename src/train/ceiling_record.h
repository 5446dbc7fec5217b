#pragma once
// Room: train. The ceilings that a run lived below, as its metrics.jsonl tells. They are the only
// thing that a run takes from the world outside its configuration and its data, so a run that meets
// the same ones at the same steps decides alike, batch for batch, and ends with the same bits.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/ceiling_watch.h"
#include "tri/result.h"

namespace tri::train {

struct CeilingRecord {
  struct Move {
    uint64_t step = 0;  // behind which it came
    uint64_t bytes = 0;
  };
  uint64_t base_bytes = 0;   // what the process held before its engine
  uint64_t first_bytes = 0;  // the ceiling at the start
  std::vector<Move> moves;
};

// Fails with kFailed where the file is not that of a run of this version.
Result<CeilingRecord> read_ceilings(const std::string& metrics);

// Takes the place of a CeilingWatch.
class RecordedCeilings {
 public:
  explicit RecordedCeilings(std::vector<CeilingRecord::Move> moves) : moves_(std::move(moves)) {}

  // Between steps; each move once.
  std::optional<CeilingMove> poll(uint64_t step);

 private:
  std::vector<CeilingRecord::Move> moves_;
  size_t next_ = 0;
};

}  // namespace tri::train
