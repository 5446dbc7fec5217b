#include "control/signal_replay.h"

namespace tri::control {

std::vector<Decision> replay(const Governor& governor, std::span<const Record> records,
                             const PlanBytes& plan) {
  GovernorState state = governor.start();
  std::vector<Decision> decisions;
  for (const Record& record : records) {
    Signals signals = record.signals;
    const Decision now = governor.current(state);
    if (now.batch != signals.batch) {
      signals.batch = now.batch;
      signals.used_bytes = plan(now.table, now.batch, now.micros);
    }
    decisions.push_back(record.urgent ? governor.react(state, signals, plan)
                                      : governor.decide(state, signals, plan));
  }
  return decisions;
}

}  // namespace tri::control
