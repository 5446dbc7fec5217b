#pragma once
// Room: train. Which step a decision means, and what the whole process then needs. In: a precision
// table, a shape and a ceiling. Out: the engine's StepSpec with as little
// recomputation as the ceiling asks for, and bytes. Takes no memory.
#include <cstdint>
#include <deque>
#include <functional>

#include "control/decision.h"
#include "control/governor.h"
#include "control/signals.h"
#include "exec/engine.h"
#include "tri/config.h"

namespace tri::train {

// What a process holds besides its engine.
struct Besides {
  uint64_t fixed_bytes = 0;
  std::function<uint64_t(int64_t samples)> waiting;  // bytes of images that wait for a micro-batch
};

class StepPricing {
 public:
  // `engine` is asked, never changed; it and `config` outlive this.
  StepPricing(const Config& config, const exec::Engine& engine, Besides besides)
      : config_(&config), engine_(&engine), besides_(std::move(besides)) {}

  // REQUIRES: micros divides batch.
  exec::StepSpec spec(const control::PrecisionTable& table, const control::StepShape& shape,
                      uint64_t limit) const;

  control::Price price(const exec::StepSpec& spec) const;
  // Of the process; UINT64_MAX where there is no such plan.
  uint64_t bytes(const exec::StepSpec& spec) const { return price(spec).bytes; }
  uint64_t bytes_now() const { return bytes(engine_->spec()); }

  control::PriceOf prices() const;

 private:
  // An answer that was given, for whoever asks again: a decision weighs the same steps many times.
  struct Answer {
    control::PrecisionTable table;
    control::StepShape shape;
    uint64_t limit = 0;
    exec::StepSpec spec;
    control::Price price;
  };
  const Answer& answer(const control::PrecisionTable& table, const control::StepShape& shape,
                       uint64_t limit) const;
  exec::StepSpec find_spec(const control::PrecisionTable& table, const control::StepShape& shape,
                           uint64_t limit) const;

  const Config* config_;
  const exec::Engine* engine_;
  Besides besides_;
  mutable std::deque<Answer> answers_;
};

// What a run begins or goes on with under this ceiling: as `state` has it where that fits,
// otherwise what the governor makes of it where its modes allow. `at`: step and samples.
struct UnderCeiling {
  control::Decision decision;
  control::Signals signals;
};
UnderCeiling decide_under(const control::Governor& governor, control::GovernorState& state,
                          const StepPricing& pricing, uint64_t used_bytes, uint64_t ceiling,
                          control::Signals at = {});

}  // namespace tri::train
