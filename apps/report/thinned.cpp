#include "report/thinned.h"

#include <algorithm>
#include <cmath>

namespace tri::report {
namespace {

Point scaled(const Point& point, double factor) { return {point.x * factor, point.y * factor}; }

}  // namespace

void Thinned::add(double x, double y) {
  if (!std::isfinite(x) || !std::isfinite(y)) return;
  if (keep_ == Keep::kExtremes) {
    points_.push_back({x, y});
  } else {
    sum_ = {sum_.x + x, sum_.y + y};
    if (++pending_ < stride_) return;
    points_.push_back(scaled(sum_, 1 / static_cast<double>(pending_)));
    sum_ = {};
    pending_ = 0;
  }
  if (points_.size() >= kMost) halve();
}

void Thinned::halve() {
  std::vector<Point> kept;
  if (keep_ == Keep::kMean) {
    stride_ *= 2;
    for (size_t i = 0; i + 1 < points_.size(); i += 2) {
      kept.push_back(
          {(points_[i].x + points_[i + 1].x) / 2, (points_[i].y + points_[i + 1].y) / 2});
    }
  } else {
    constexpr size_t kGroup = 4;
    kept.push_back(points_.front());
    for (size_t i = 1; i + 1 < points_.size(); i += kGroup) {
      const auto first = points_.begin() + static_cast<ptrdiff_t>(i);
      const auto last =
          points_.begin() + static_cast<ptrdiff_t>(std::min(i + kGroup, points_.size() - 1));
      auto [low, high] = std::minmax_element(
          first, last, [](const Point& a, const Point& b) { return a.y < b.y; });
      if (high < low) std::swap(low, high);
      kept.push_back(*low);
      if (high != low) kept.push_back(*high);
    }
    kept.push_back(points_.back());
  }
  points_ = std::move(kept);
}

std::vector<Point> Thinned::points() const {
  std::vector<Point> all = points_;
  if (pending_ > 0) all.push_back(scaled(sum_, 1 / static_cast<double>(pending_)));
  return all;
}

}  // namespace tri::report
