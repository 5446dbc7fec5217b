#pragma once
// Room: train. Who moves the ceiling of a run in progress: `triaccel set`, a cgroup, or other
// programs that take the machine's memory. In: the run's requests and the machine's limits. Out:
// the ceiling from now on, and why. Moves nothing itself; outside the contract of exact resume.
#include <cstdint>
#include <optional>
#include <string>

#include "memory/probes.h"
#include "train/request.h"

namespace tri::train {

struct CeilingMove {
  uint64_t bytes = 0;
  std::string reason;
};

class CeilingWatch {
 public:
  // `asked`: the ceiling that the user wants, `now`: the one that holds.
  CeilingWatch(RequestReader requests, memory::Probes probes, uint64_t asked, uint64_t now)
      : requests_(std::move(requests)), probes_(std::move(probes)), asked_(asked), now_(now) {}

  // Between steps; costs a stat(), and once a second a look at the machine's limits.
  std::optional<CeilingMove> poll(int64_t now_ns);

  // What a resumed run goes on from.
  uint64_t asked() const { return asked_; }
  uint64_t request_serial() const { return requests_.serial(); }

 private:
  struct Outer {
    uint64_t bytes = UINT64_MAX;
    std::string reason;
  };
  Outer outer_limit() const;
  std::optional<CeilingMove> move_to(uint64_t bytes, std::string reason);

  RequestReader requests_;
  memory::Probes probes_;
  uint64_t asked_, now_;
  int64_t looked_ns_ = 0;
};

}  // namespace tri::train
