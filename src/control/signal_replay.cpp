#include "control/signal_replay.h"

namespace tri::control {

std::vector<Decision> replay(const Governor& governor, std::span<const Record> records,
                             const PriceOf& price) {
  GovernorState state = governor.start();
  std::vector<Decision> decisions;
  for (const Record& record : records) {
    Signals signals = record.signals;
    const Decision now = governor.current(state);
    if (now.batch != signals.batch) {
      signals.batch = now.batch;
      signals.used_bytes = price(now.table, now, signals.ceiling_bytes).bytes;
    }
    if (!record.urgent && !signals.lambda.empty()) {
      smooth_curvature(governor.settings().step_size, state.lambda, signals.lambda);
    }
    decisions.push_back(record.urgent ? governor.react(state, signals, price)
                                      : governor.decide(state, signals, price));
  }
  return decisions;
}

}  // namespace tri::control
