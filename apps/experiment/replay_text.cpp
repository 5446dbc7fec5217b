#include "experiment/replay_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

namespace tri::experiment {
namespace {

// Reasons may name thresholds, so two equal changes can have two of them.
bool same_change(const GovernorChange& a, const GovernorChange& b) {
  return a.step == b.step && a.what == b.what && a.from == b.from && a.to == b.to;
}

std::vector<GovernorChange> without(const std::vector<GovernorChange>& changes,
                                    std::vector<GovernorChange> others) {
  std::vector<GovernorChange> left;
  for (const GovernorChange& change : changes) {
    const auto found = std::ranges::find_if(
        others, [&](const GovernorChange& other) { return same_change(change, other); });
    if (found == others.end()) {
      left.push_back(change);
    } else {
      others.erase(found);
    }
  }
  return left;
}

void put_lines(std::multimap<uint64_t, std::string>& lines, char mark,
               const std::vector<GovernorChange>& changes) {
  for (const GovernorChange& change : changes) {
    lines.emplace(change.step,
                  fmt::format("{} step {:<7} {:<32} {} -> {}  ({})\n", mark, change.step,
                              change.what, change.from, change.to, change.reason));
  }
}

Json as_json(const std::vector<GovernorChange>& changes) {
  Json list = Json::array();
  for (const GovernorChange& change : changes) {
    list.push_back({{"step", change.step},
                    {"what", change.what},
                    {"from", change.from},
                    {"to", change.to},
                    {"reason", change.reason}});
  }
  return list;
}

}  // namespace

std::string to_text(const Replay& replay) {
  const auto lost = without(replay.recorded, replay.replayed);
  const auto gained = without(replay.replayed, replay.recorded);
  std::string text = fmt::format(
      "{} decisions were recorded, {} would have been made, {} are the same\n",
      replay.recorded.size(), replay.replayed.size(), replay.recorded.size() - lost.size());
  std::multimap<uint64_t, std::string> lines;  // keeps the order within a step: '-' first
  put_lines(lines, '-', lost);
  put_lines(lines, '+', gained);
  for (const auto& [step, line] : lines) text += line;
  if (!replay.points.empty()) {
    const GovernorPoint& end = replay.points.back();
    text += fmt::format(
        "at step {}: batch {}, micro-batches {}, loss scale {}, fp32 {:.0f} %, bf16 {:.0f} %, "
        "fp16 {:.0f} %, fp8 {:.0f} % of parameters\n",
        end.step, end.batch, end.micros, end.loss_scale, 100 * end.fp32, 100 * end.bf16,
        100 * end.fp16, 100 * end.fp8);
    if (!end.step_factors.empty()) {
      const auto [least, most] = std::ranges::minmax(end.step_factors);
      text += fmt::format("step sizes of the layers: {:.2f} to {:.2f} of the rate\n", least, most);
    }
  }
  return text;
}

Json to_json(const Replay& replay) {
  Json points = Json::array();
  for (const GovernorPoint& point : replay.points) {
    points.push_back(
        {{"step", point.step},
         {"batch", point.batch},
         {"micros", point.micros},
         {"loss_scale", point.loss_scale},
         {"precision",
          {{"fp32", point.fp32}, {"bf16", point.bf16}, {"fp16", point.fp16}, {"fp8", point.fp8}}},
         {"step_factors", point.step_factors}});
  }
  return {{"recorded", as_json(replay.recorded)},
          {"replayed", as_json(replay.replayed)},
          {"points", points}};
}

}  // namespace tri::experiment
