// What a step gives up when it does not fit, and takes back when there is room: rule 2 of the
// governor.
//
// Note [Rungs]
// kRungs lists them in the order in which they are taken, each on top of those before it; a run has
// those that its modes open. First what changes no bit, then what the user let float, last what
// changes the network: docs/decisions/0005-rungs.md. A rung is for the moment: climb_back() undoes
// it, the last first, as soon as rho_high of the ceiling allows, and a batch that may move goes on
// shrinking, a step in every window, until no rung that costs time or bits is needed. To add one:
// its function, a line in kRungs and, if it can be undone, one in climb_back().
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "control/deliberation.h"

namespace tri::control {
namespace {

// Below it batch norm makes little more than signs of layers of one pixel.
constexpr int64_t kLeastGhost = 4;

int64_t largest_proper_divisor(int64_t number) {
  int64_t divisor = number / 2;
  while (divisor > 1 && number % divisor != 0) --divisor;
  return divisor;
}

}  // namespace

bool Deliberation::make_room(bool gently) {
  struct Rung {
    void (Deliberation::*take)(const std::string& why);
    bool gentle;  // worth taking even where all of them do not suffice
  };
  static constexpr Rung kRungs[] = {
      {&Deliberation::recompute_blocks, true}, {&Deliberation::cut_finer, true},
      {&Deliberation::take_back_wishes, true}, {&Deliberation::narrow_outputs, false},
      {&Deliberation::shrink_batch, true},     {&Deliberation::shrink_ghost, false},
  };
  for (const Rung& rung : kRungs) {
    const uint64_t bytes = planned(state_);
    if (bytes <= ceiling()) return true;
    if (gently && !rung.gentle) continue;
    const size_t said = changes_.size();
    (this->*rung.take)(fmt::format("{} would not fit into {}", base::format_bytes(bytes),
                                   base::format_bytes(ceiling())));
    // The price of the whole rung, with its last line.
    if (changes_.size() > said) {
      changes_.back().reason += fmt::format("; now {}", base::format_bytes(planned(state_)));
    }
  }
  return fits();
}

void Deliberation::recompute_blocks(const std::string&) {
  state_.recompute = settings().recompute;  // note_blocks() says how many it came to
}

void Deliberation::cut_finer(const std::string& why) {
  if (settings().batching != BatchPolicy::kMicro) return;
  StepShape shape = state_;
  const int64_t unit = std::max<int64_t>(1, elastic().unit);
  const auto micros = least_micros(state_.batch, unit, ceiling(), [&](int64_t m) {
    shape.micros = m;
    return planned(shape);
  });
  const int64_t cut = micros.value_or(state_.batch / unit);
  if (cut > state_.micros) set_micros(cut, why);
}

std::vector<size_t> Deliberation::granted_wishes() const {
  std::vector<size_t> layers;
  for (size_t l = 0; l < state_.layers.size(); ++l) {
    const AdaptiveLayer& layer = state_.layers[l];
    if (layer.level == Level::kFp32 && must(adaptive(), layer) < Level::kFp32) layers.push_back(l);
  }
  std::ranges::stable_sort(layers, std::ranges::greater(),
                           [&](size_t l) { return governor_.layers()[l].y_elements; });
  return layers;
}

// As few of `layers`, in their order, as suffice; all where none suffice.
template <class Give>
void Deliberation::give_up(const std::vector<size_t>& layers, const Give& give) {
  const auto enough = [&](size_t count) {
    const GovernorState before = state_;
    const size_t said = changes_.size();
    for (size_t i = 0; i < count; ++i) give(layers[i]);
    const bool fit = fits();
    state_ = before;
    changes_.resize(said);
    return fit;
  };
  size_t few = 0, many = layers.size();
  while (many - few > 1) {
    const size_t middle = (few + many) / 2;
    (enough(middle) ? many : few) = middle;
  }
  for (size_t i = 0; i < many; ++i) give(layers[i]);
}

void Deliberation::take_back_wish(size_t layer, const std::string& why) {
  set_level(layer, Level::kBf16, why);
  state_.layers[layer].held = true;
}

void Deliberation::take_back_wishes(const std::string& why) {
  if (settings().precision != PrecisionPolicy::kAdaptive) return;
  give_up(granted_wishes(), [&](size_t l) { take_back_wish(l, why); });
}

void Deliberation::narrow_outputs(const std::string& why) {
  if (settings().precision != PrecisionPolicy::kAdaptive) return;
  std::vector<size_t> layers;
  for (size_t l = 0; l < state_.layers.size(); ++l) {
    const AdaptiveLayer& layer = state_.layers[l];
    if (!layer.narrow && !layer.lossy && layer.level < Level::kFp32) layers.push_back(l);
  }
  std::ranges::stable_sort(layers, std::ranges::greater(),
                           [&](size_t l) { return governor_.layers()[l].y_elements; });
  give_up(layers, [&](size_t l) { set_narrow(l, true, why); });
}

void Deliberation::shrink_batch(const std::string& why) {
  if (settings().batching != BatchPolicy::kElastic) return;
  StepShape shape = state_;
  const auto batch = largest_fitting(elastic(), state_.batch, ceiling(), [&](int64_t b) {
    shape.batch = b;
    return planned(shape);
  });
  const int64_t smaller = batch.value_or(elastic().least);
  if (smaller < state_.batch) set_batch(smaller, why);
  state_.rest = elastic().rest_windows;
}

// A batch that is as small as its ghost batch, or cut as fine, ends there; with a smaller one it
// can go on. A bound that the user has set above the ghost batch is not passed.
void Deliberation::shrink_ghost(const std::string& why) {
  const bool elastic_batch = settings().batching == BatchPolicy::kElastic;
  if (!elastic_batch && settings().batching != BatchPolicy::kMicro) return;
  if (elastic_batch && settings().elastic.least > settings().ghost) return;
  int64_t ghost = state_.ghost;
  StepShape shape = state_;
  do {
    const int64_t smaller = largest_proper_divisor(ghost);
    if (smaller < kLeastGhost) break;
    ghost = shape.ghost = smaller;
    if (elastic_batch)
      shape.batch = ghost;
    else
      shape.micros = state_.batch / ghost;
  } while (planned(shape) > ceiling());
  if (ghost == state_.ghost) return;
  if (shape.batch != state_.batch) set_batch(shape.batch, why);
  if (shape.micros != state_.micros) set_micros(shape.micros, why);
  set_ghost(ghost, why + "; batch norm sees fewer samples at a time");
}

bool Deliberation::rescued() const {
  return state_.blocks > 0 || std::ranges::any_of(state_.layers, &AdaptiveLayer::narrow);
}

// The ceiling may have been moved under a plan that fitted; then recomputation is weighed afresh.
// Where all rungs together do not suffice, those that change neither numbers nor network are taken.
void Deliberation::respect_ceiling() {
  const uint64_t before = std::exchange(state_.ceiling_bytes, signals_.ceiling_bytes);
  const bool moved = before != state_.ceiling_bytes;
  if (moved) state_.recompute = false;
  if (!moved && signals_.used_bytes <= ceiling()) return;
  if (!attempt([] {})) make_room(/*gently=*/true);
}

// Runs `change` and keeps it if that stays within rho_high, with blocks recomputed where it helps.
template <class Restore>
bool Deliberation::restore(const Restore& change) {
  GovernorState before = state_;
  const size_t said = changes_.size();
  change();
  state_.recompute = settings().recompute;
  const uint64_t limit = share_of_ceiling(settings().elastic.rho_high);
  if (price(state_, limit).bytes <= limit) return true;
  state_ = std::move(before);
  changes_.resize(said);
  return false;
}

void Deliberation::climb_back() {
  if (state_.ghost < settings().ghost) {
    restore([this] {
      const int64_t ghost = settings().ghost;
      const std::string why = "there is room for it again";
      const int64_t whole = (state_.batch + ghost - 1) / ghost * ghost;
      if (whole != state_.batch) set_batch(whole, why);
      const int64_t micros = settings().batching == BatchPolicy::kMicro ? whole / ghost : 1;
      if (micros != state_.micros) set_micros(micros, why);
      set_ghost(ghost, why);
    });
  }
  std::vector<size_t> narrow;
  for (size_t l = 0; l < state_.layers.size(); ++l) {
    if (state_.layers[l].narrow) narrow.push_back(l);
  }
  std::ranges::stable_sort(narrow, {}, [&](size_t l) { return governor_.layers()[l].y_elements; });
  for (const size_t l : narrow) {
    if (!restore([&] { set_narrow(l, false, "there is room for it again"); })) break;
  }
  StepShape plain = state_;
  plain.recompute = false;
  const uint64_t limit = share_of_ceiling(settings().elastic.rho_high);
  if (state_.recompute && planned(plain) <= limit) state_.recompute = false;
}

// How many blocks are recomputed is the planner's to say; that it changed is part of the decision.
void Deliberation::note_blocks() {
  if (!state_.recompute && state_.blocks == 0) return;
  if (state_.recompute && changes_.empty() && state_.blocks > 0) return;  // planned as before
  const Price now = price(state_, ceiling());
  if (state_.recompute && now.blocks == 0) state_.recompute = false;
  if (now.blocks == state_.blocks) return;
  StepShape plain = state_;
  plain.recompute = false;
  changes_.push_back({"recomputed blocks", fmt::format("{}", state_.blocks),
                      fmt::format("{}", now.blocks),
                      fmt::format("{} without, {} with them, of {}; {:.0f} % more multiply-adds",
                                  base::format_bytes(planned(plain)), base::format_bytes(now.bytes),
                                  base::format_bytes(ceiling()), 100 * now.again)});
  state_.blocks = now.blocks;
}

}  // namespace tri::control
