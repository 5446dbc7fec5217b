#include "train/fitting.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "exec/recompute.h"

namespace tri::train {
namespace {

using exec::StepSpec;

class Ladder {
 public:
  Ladder(const exec::Engine& engine, const Config& config, const StepSpec& asked,
         const EngineRoom& room)
      : engine_(engine), config_(config), asked_(asked), room_(room) {}

  std::optional<Fit> climb() {
    StepSpec spec = asked_;
    for (;; spec.ghost /= 2) {
      if (std::optional<Fit> found = with_ghost(spec)) return found;
      const bool may_shrink =
          config_.batch_mode != BatchMode::kFixed && spec.ghost > 1 && spec.ghost % 2 == 0;
      if (!may_shrink) return std::nullopt;
    }
  }

 private:
  bool fits(const StepSpec& spec) const {
    const Result<exec::Forecast> forecast = engine_.price(spec);
    return forecast && forecast->engine_peak_bytes <= room_(spec.samples);
  }

  // The spec as it is, or with what --recompute allows.
  std::optional<StepSpec> recomputed(const StepSpec& spec) const {
    if (config_.recompute != Recompute::kAuto) return std::nullopt;
    return exec::with_recompute_within(engine_, spec, room_(spec.samples));
  }

  // Sizes that a step may shrink to, largest first; they share the ghost batch.
  std::vector<StepSpec> smaller(const StepSpec& spec) const {
    std::vector<StepSpec> sizes;
    const int64_t unit = std::max<int64_t>(1, spec.ghost);
    if (config_.batch_mode == BatchMode::kElastic) {
      // Without a smaller ghost batch the configured floor holds.
      const int64_t least = std::min(*config_.batch_min, spec.samples);
      for (int64_t n = spec.samples - unit; n >= std::max(unit, least); n -= unit) {
        sizes.push_back(spec);
        sizes.back().samples = n;
      }
    } else if (config_.batch_mode == BatchMode::kMicro) {
      const int64_t units = spec.batch() / unit;
      for (int64_t parts = spec.micros + 1; parts <= units; ++parts) {
        if (units % parts != 0) continue;
        sizes.push_back(spec);
        sizes.back().samples = units / parts * unit;
        sizes.back().micros = parts;
      }
    }
    return sizes;
  }

  std::optional<Fit> with_ghost(const StepSpec& spec) const {
    if (fits(spec)) return finish(spec);
    const std::vector<StepSpec> sizes = smaller(spec);
    // The need grows with the samples, so the first that fits can be halved for.
    const auto half = std::ranges::partition_point(
        sizes, [&](const StepSpec& size) { return 2 * size.samples >= spec.samples; });
    if (const auto found = std::partition_point(
            sizes.begin(), half, [this](const StepSpec& size) { return !fits(size); });
        found != half)
      return finish(*found);
    if (const auto found = recomputed(spec)) return finish(*found);
    const auto found = std::ranges::partition_point(
        sizes, [this](const StepSpec& size) { return !fits(size) && !recomputed(size); });
    if (found == sizes.end()) return std::nullopt;
    return finish(fits(*found) ? *found : *recomputed(*found));
  }

  Fit finish(const StepSpec& spec) const {
    Fit fit;
    fit.spec = spec;
    fit.engine_bytes = engine_.price(spec)->engine_peak_bytes;
    const Result<exec::Forecast> before = engine_.price(asked_);
    const std::string reason =
        before ? fmt::format("a step as asked needs {}, there is room for {}, now {}",
                             base::format_bytes(before->engine_peak_bytes),
                             base::format_bytes(room_(asked_.samples)),
                             base::format_bytes(fit.engine_bytes))
               : "";
    const auto rung = [&](std::string what, auto from, auto to, bool warn = false) {
      if (from != to)
        fit.rungs.push_back(
            {std::move(what), fmt::format("{}", from), fmt::format("{}", to), reason, warn});
    };
    rung("ghost batch", asked_.ghost, spec.ghost, true);
    if (config_.batch_mode == BatchMode::kMicro)
      rung("micro-batches", asked_.micros, spec.micros);
    else
      rung("batch", asked_.samples, spec.samples);
    rung("recomputed blocks", asked_.recompute.size(), spec.recompute.size());
    return fit;
  }

  const exec::Engine& engine_;
  const Config& config_;
  const StepSpec& asked_;
  const EngineRoom& room_;
};

}  // namespace

std::optional<Fit> fit_step(const exec::Engine& engine, const Config& config,
                            const exec::StepSpec& asked, const EngineRoom& room) {
  return Ladder(engine, config, asked, room).climb();
}

std::string closed_rungs(const Config& config) {
  std::vector<std::string> closed;
  if (config.recompute != Recompute::kAuto) closed.emplace_back("--recompute auto");
  if (config.batch_mode == BatchMode::kFixed) {
    closed.emplace_back("--batch-mode micro");
    closed.emplace_back("--batch-mode elastic");
  }
  std::string text;
  for (const std::string& one : closed) text += (text.empty() ? "" : ", ") + one;
  return text;
}

}  // namespace tri::train
