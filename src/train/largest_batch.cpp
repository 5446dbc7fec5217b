#include "train/largest_batch.h"

#include <algorithm>
#include <utility>
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

  // The most units within `limit`. The need is nearly linear in the batch, so the next guess is
  // where the line through the last two meets the limit; large batches are few, as their plans are
  // long. REQUIRES: `fit` units are.
  Result<int64_t> most_within(uint64_t limit, int64_t fit) {
    const int64_t most = kMostSamples / unit();
    End low{fit, 0}, high{most + 1, UINT64_MAX}, other{fit == 1 ? 2 : fit / 2, 0};
    TRI_ASSIGN(low.peak, peak(low.units));
    TRI_ASSIGN(other.peak, peak(other.units));
    if (other.peak <= limit && other.units > low.units) std::swap(low, other);
    if (other.peak > limit) high = other;
    while (high.units - low.units > 1) {
      End next{std::clamp(guess(low, other, limit), low.units + 1, high.units - 1), 0};
      TRI_ASSIGN(next.peak, peak(next.units));
      other = next.peak <= limit ? std::exchange(low, next) : (high = next);
    }
    return low.units;
  }

 private:
  struct End {
    int64_t units;
    uint64_t peak;
  };

  static int64_t guess(const End& a, const End& b, uint64_t limit) {
    const auto gap = [](uint64_t from, uint64_t to) {
      return static_cast<double>(to) - static_cast<double>(from);
    };
    const double slope = gap(a.peak, b.peak) / static_cast<double>(b.units - a.units);
    return a.units + static_cast<int64_t>(gap(a.peak, limit) / std::max(slope, 1.0));
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
