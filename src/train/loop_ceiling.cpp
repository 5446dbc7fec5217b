// The training loop's part that lives below a ceiling which others move.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/clock.h"
#include "memory/malloc_policy.h"
#include "train/training_loop.h"

namespace tri::train {

uint64_t TrainingLoop::process_peak() const {
  return std::max<uint64_t>({state_.process_peak_bytes, peak_before_,
                             memory::Probes().peak_resident().bytes.value_or(0)});
}

uint64_t TrainingLoop::engine_peak() const {
  return std::max<uint64_t>(state_.engine_peak_bytes, parts_.engine.measured_peak_bytes());
}

Result<void> TrainingLoop::follow_ceiling() {
  const std::optional<CeilingMove> move =
      recorded_ ? recorded_->poll(state_.step) : watch_.poll(base::now_ns());
  const bool asked = std::exchange(state_.asked_bytes, watch_.asked()) != watch_.asked();
  state_.request_serial = watch_.request_serial();
  if (!move) return {};
  const int64_t samples = parts_.engine.spec().samples, batch = state_.control.batch;
  const base::Stopwatch spent;
  TRI_ASSIGN(metrics::Fields event, steering_.move_ceiling(move->bytes, move->reason));
  state_.control_seconds += spent.seconds();
  TRI_TRY(write(metrics::EventKind::kControl, std::move(event)));
  if (parts_.engine.spec().samples != samples) free_ring();
  memory::return_free_memory();
  // From here on the peak that counts is the one below the new ceiling.
  peak_before_ = process_peak();
  (void)memory::Probes()
      .reset_peak_resident();  // refused in some containers: then the old one stays
  TRI_TRY(report_small_ghost());
  const uint64_t needs = parts_.pricing.bytes_now();
  if (needs <= move->bytes) {
    // A large machine breathes all the time: worth a line only if it concerns this run.
    const bool matters = asked || batch != state_.control.batch || needs > move->bytes / 2;
    if (matters) {
      parts_.panel.note(fmt::format("memory ceiling {} ({}): batch {}",
                                    base::format_bytes(move->bytes), move->reason,
                                    state_.control.batch));
    }
    return {};
  }
  return warn(
      fmt::format("a ceiling of {} ({}) is below the {} that the smallest step of this run "
                  "needs; it goes on with those",
                  base::format_bytes(move->bytes), move->reason, base::format_bytes(needs)));
}

Result<void> TrainingLoop::report_small_ghost() {
  const int64_t asked = *parts_.config.ghost_batch;
  const int64_t now = parts_.engine.spec().ghost;
  if (std::exchange(ghost_, now) == now || now >= asked) return {};
  return warn(
      fmt::format("batch norm sees {} samples at a time instead of {}: a ceiling of {} leaves no "
                  "room for more, and its statistics get noisier",
                  now, asked, base::format_bytes(state_.ceiling_bytes)));
}

}  // namespace tri::train
