#include "exec/recompute.h"

#include <algorithm>

namespace tri::exec {
namespace {

// The last op that reads each tensor; for a product of squeeze-excite, its factor's base.
std::vector<int> last_readers(const Lowered& graph) {
  std::vector<int> last(graph.tensors.size(), -1);
  for (size_t index = 0; index < graph.ops.size(); ++index)
    for (int t : graph.ops[index].inputs) {
      const int base = graph.tensors[static_cast<size_t>(t)].scaled;
      last[static_cast<size_t>(base >= 0 ? base : t)] = static_cast<int>(index);
    }
  return last;
}

// Blocks of a segment, as tried one after the other.
constexpr size_t kCuts[] = {1, 2, 3, 4, 6, 8, 12, 16};

// What a segment drops, and what making it again costs, per sample.
struct Worth {
  double bytes = 0, macs = 0;
};

Worth worth_of(const Engine& engine, const StepSpec& spec, const Segment& segment,
               const std::vector<int>& last) {
  const Lowered& graph = engine.lowered();
  Worth worth;
  for (int index = segment.first; index <= segment.last; ++index) {
    const LoweredOp& op = graph.ops[static_cast<size_t>(index)];
    const LoweredTensor& output = graph.tensors[static_cast<size_t>(op.output)];
    if (output.scaled >= 0 || last[static_cast<size_t>(op.output)] > segment.last) continue;
    if (spec.drop_light && is_light(op)) continue;  // without a segment as well
    const Format y = spec.formats.empty() || output.layer < 0
                         ? Format::kF32
                         : spec.formats[static_cast<size_t>(output.layer)].y;
    const auto elements = static_cast<double>(output.shape.elements());
    worth.bytes += elements * static_cast<double>(numeric::storage_bytes(y));
    const ops::Operation* operation =
        engine.step_plan().operations[static_cast<size_t>(index)].get();
    // Reading and writing an element costs about as much as ten products.
    worth.macs += 10 * elements;
    if (operation != nullptr) worth.macs += static_cast<double>(operation->needs().macs);
  }
  return worth;
}

StepSpec with_segments(StepSpec spec, std::vector<Segment> chosen) {
  std::ranges::sort(chosen, {}, &Segment::first);
  spec.recompute = std::move(chosen);
  return spec;
}

}  // namespace

std::vector<Segment> segments(const Lowered& graph, size_t cuts) {
  const std::vector<int> last = last_readers(graph);
  std::vector<Segment> found;
  Segment open{0, 0};
  size_t blocks = 0;
  int furthest = -1;  // the last op that reads anything made so far, the newest tensor left out
  bool drops = false;
  for (int index = 0; index + 1 < static_cast<int>(graph.ops.size()); ++index) {
    const int output = graph.ops[static_cast<size_t>(index)].output;
    const LoweredTensor& made = graph.tensors[static_cast<size_t>(output)];
    const bool cut = furthest <= index && made.scaled < 0;
    furthest =
        std::max(furthest, last[static_cast<size_t>(made.scaled >= 0 ? made.scaled : output)]);
    if (cut && ++blocks >= cuts) {
      if (drops) found.push_back({open.first, index});
      open.first = index + 1;
      blocks = 0;
      drops = false;
    } else {
      drops = true;
    }
  }
  if (drops) found.push_back({open.first, static_cast<int>(graph.ops.size()) - 1});
  return found;
}

StepSpec with_all_recomputed(const Engine& engine, StepSpec spec) {
  return with_segments(std::move(spec), segments(engine.lowered(), 1));
}

std::vector<std::vector<Segment>> ways_to_recompute(const Lowered& graph) {
  std::vector<std::vector<Segment>> ways;
  for (const size_t cuts : kCuts) {
    std::vector<Segment> found = segments(graph, cuts);
    if (!found.empty()) ways.push_back(std::move(found));
  }
  return ways;
}

StepSpec with_recompute_within(const Engine& engine, StepSpec spec, size_t bytes) {
  spec.recompute.clear();
  StepSpec smallest = spec;
  size_t least = SIZE_MAX;
  const auto fits = [&](const StepSpec& candidate) {
    const Result<Forecast> forecast = engine.price(candidate);
    if (!forecast) return false;
    if (forecast->engine_peak_bytes < least) {
      least = forecast->engine_peak_bytes;
      smallest = candidate;
    }
    return forecast->engine_peak_bytes <= bytes;
  };
  if (fits(spec)) return spec;
  const std::vector<int> last = last_readers(engine.lowered());
  for (const size_t cuts : kCuts) {
    std::vector<Segment> all = segments(engine.lowered(), cuts);
    std::ranges::stable_sort(all, std::ranges::greater(), [&](const Segment& segment) {
      const Worth worth = worth_of(engine, spec, segment, last);
      return worth.bytes / std::max(1.0, worth.macs);
    });
    const auto first = [&](size_t count) {
      return with_segments(spec, {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count)});
    };
    if (all.empty() || !fits(first(all.size()))) continue;
    size_t too_few = 0, enough = all.size();
    while (enough - too_few > 1) {
      const size_t middle = (too_few + enough) / 2;
      (fits(first(middle)) ? enough : too_few) = middle;
    }
    return first(enough);
  }
  return smallest;
}

}  // namespace tri::exec
