#include "train/largest_batch.h"

#include <algorithm>
#include <vector>

#include "exec/recompute.h"

namespace tri::train {
namespace {

constexpr int64_t kMostSamples = 1'000'000;  // as --batch

// One way to make a step, at any batch.
class Way {
 public:
  Way(const exec::Engine& engine, const Besides& besides, std::vector<exec::Segment> recompute)
      : engine_(&engine), besides_(&besides), spec_(engine.spec()) {
    spec_.recompute = std::move(recompute);
  }

  int64_t unit() const { return std::max<int64_t>(1, spec_.ghost); }

  Result<uint64_t> peak(int64_t units) {
    spec_.samples = units * unit();
    TRI_ASSIGN(const exec::Forecast forecast, engine_->price(spec_));
    return forecast.engine_peak_bytes + besides_->fixed_bytes + besides_->waiting(spec_.samples);
  }

  // The most units within `limit`, given that `fit` are (or 0). The need is nearly linear in the
  // batch, so the next guess is where the line through the bracket's ends meets the limit.
  Result<int64_t> most_within(uint64_t limit, int64_t fit) {
    const int64_t most = kMostSamples / unit();
    End low{fit, 0}, high{fit, 0};
    while (high.peak <= limit) {
      low = high;
      if (low.units == most) return most;
      high.units = std::min(most, std::max<int64_t>(1, 2 * low.units));
      TRI_ASSIGN(high.peak, peak(high.units));
    }
    while (high.units - low.units > 1) {
      End middle{guess(low, high, limit), 0};
      TRI_ASSIGN(middle.peak, peak(middle.units));
      (middle.peak <= limit ? low : high) = middle;
    }
    return low.units;
  }

 private:
  struct End {
    int64_t units;
    uint64_t peak;
  };

  static int64_t guess(const End& low, const End& high, uint64_t limit) {
    const double share =
        static_cast<double>(limit - low.peak) / static_cast<double>(high.peak - low.peak);
    const auto step = static_cast<int64_t>(share * static_cast<double>(high.units - low.units));
    return std::clamp(low.units + step, low.units + 1, high.units - 1);
  }

  const exec::Engine* engine_;
  const Besides* besides_;
  exec::StepSpec spec_;
};

}  // namespace

// Each way is only asked whether it can do better than the best so far, which mostly it cannot.
Result<int64_t> largest_batch(const Config& config, const exec::Engine& engine,
                              const Besides& besides, uint64_t ceiling) {
  std::vector<Way> ways{{engine, besides, engine.spec().recompute}};
  // An elastic batch does not grow into recomputation.
  if (config.recompute == Recompute::kAuto && config.batch_mode != BatchMode::kElastic) {
    for (std::vector<exec::Segment>& some : exec::ways_to_recompute(engine.lowered())) {
      ways.emplace_back(engine, besides, std::move(some));
    }
  }
  int64_t best = 0;
  for (Way& way : ways) {
    TRI_ASSIGN(const uint64_t more, way.peak(best + 1));
    if (more > ceiling) continue;
    TRI_ASSIGN(best, way.most_within(ceiling, best + 1));
  }
  return best * ways.front().unit();
}

}  // namespace tri::train
