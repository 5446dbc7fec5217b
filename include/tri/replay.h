#pragma once
// Door of room train: what a finished run's governor would have decided under other settings. Reads
// the signals that the run recorded; trains nothing and opens no data.
#include <cstdint>
#include <string>
#include <vector>

#include "tri/result.h"
#include "tri/session.h"

namespace tri {

// One change of the governor, as in a `control` event.
struct GovernorChange {
  uint64_t step = 0;
  std::string what, from, to, reason;
  bool operator==(const GovernorChange&) const = default;
};

// Where the governor stood behind a decision.
struct GovernorPoint {
  uint64_t step = 0;
  int64_t batch = 0, micros = 1;
  double loss_scale = 1;
  double fp32 = 0, bf16 = 0, fp16 = 0, fp8 = 0;  // shares of parameters
  std::vector<double> step_factors;              // of the rate, by layer
};

struct Replay {
  std::vector<GovernorChange> recorded;  // what the run did
  std::vector<GovernorChange> replayed;  // what it would have done
  std::vector<GovernorPoint> points;     // of the replay, one per recorded decision
};

// `directory` of a run with at least one checkpoint. `changes` are settings as in --set, thresholds
// and bounds of the governor; any other is refused. Without any the two lists agree. With other
// thresholds the gradients are still those of the recorded run, so it is a first answer, not a
// training.
Result<Replay> replay_run(const std::string& directory, const Settings& changes);

}  // namespace tri
