#include "train/trace.h"

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "train/replace_file.h"

namespace tri::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPhases[] = {"forward", "backward", "update"};

Json row_name(size_t phase) {
  return {{"name", "thread_name"},
          {"ph", "M"},
          {"pid", 1},
          {"tid", phase + 1},
          {"args", {{"name", kPhases[phase]}}}};
}

}  // namespace

std::string trace_json(const exec::StepPlan& plan, std::span<const int64_t> tick_ns) {
  Json events = Json::array();
  for (size_t phase = 0; phase < std::size(kPhases); ++phase) events.push_back(row_name(phase));
  double begin = 0;  // microseconds
  // Exact clipping runs the ticks twice.
  for (size_t i = 0; i < tick_ns.size(); ++i) {
    const exec::Tick& tick = plan.ticks[i % plan.ticks.size()];
    const double spent = 1e-3 * static_cast<double>(tick_ns[i]);
    const auto phase = static_cast<size_t>(tick.phase);
    events.push_back({{"name", tick.name},
                      {"cat", kPhases[phase]},
                      {"ph", "X"},
                      {"pid", 1},
                      {"tid", phase + 1},
                      {"ts", begin},
                      {"dur", spent}});
    begin += spent;
  }
  return Json{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump();
}

Result<void> begin_trace(const std::string& path) { return replace_file(path, trace_json({}, {})); }

Result<void> write_trace(const std::string& path, const exec::Engine& engine) {
  return replace_file(path, trace_json(engine.step_plan(), engine.tick_ns()));
}

}  // namespace tri::train
