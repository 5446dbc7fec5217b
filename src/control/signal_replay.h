#pragma once
// Room: control. What a governor would have decided on recorded signals: with the settings of the
// run the same as then, with others what those would have led to.
#include <span>
#include <vector>

#include "control/governor.h"

namespace tri::control {

struct Record {
  bool urgent = false;  // of one step, inside a window; otherwise of a whole window
  Signals signals;
};

// One decision per record. Where the replayed run has come to another batch than the
// recorded one, its memory use is what `price` says. The rest of the signals are those of the
// recorded run: what other formats would have done to the gradients nobody knows.
std::vector<Decision> replay(const Governor& governor, std::span<const Record> records,
                             const PriceOf& price);

}  // namespace tri::control
