#pragma once
// apps/report. A curve in bounded memory. In: any number of points, in the order of x. Out: a few
// hundred that look the same.
#include <cstddef>
#include <vector>

namespace tri::report {

struct Point {
  double x = 0, y = 0;
};

// Which points stand for many: their mean (noisy curves), or the lowest and the highest of them
// (levels, where a short excursion matters).
enum class Keep { kMean, kExtremes };

class Thinned {
 public:
  static constexpr size_t kMost = 512;

  explicit Thinned(Keep keep = Keep::kExtremes) : keep_(keep) {}

  void add(double x, double y);  // ignored unless both are finite
  std::vector<Point> points() const;
  bool empty() const { return points_.empty() && pending_ == 0; }

 private:
  void halve();

  Keep keep_;
  std::vector<Point> points_;
  size_t stride_ = 1;  // kMean: points behind each kept one
  Point sum_;          // kMean: of those that wait for their stride to be full
  size_t pending_ = 0;
};

}  // namespace tri::report
