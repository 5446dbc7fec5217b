#include "report/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tri::report {
namespace {

struct Step {
  double from, divisor;
  std::string_view unit;
};
// The largest whose `from` the data reach.
constexpr Step kTimes[] = {{0, 1, "s"}, {300, 60, "min"}, {3 * 3600, 3600, "h"}};
constexpr Step kSizes[] = {{0, 1, "B"},
                           {0x1p10, 0x1p10, "KiB"},
                           {0x1p20, 0x1p20, "MiB"},
                           {0x1.4p32, 0x1p30, "GiB"}};  // from 5 GiB: four digits of MiB read well

void choose_unit(Axis& axis, double high, Unit unit) {
  const auto largest = [&](const auto& steps) {
    for (const Step& step : steps) {
      if (high >= step.from) {
        axis.divisor = step.divisor;
        axis.unit = step.unit;
      }
    }
  };
  switch (unit) {
    case Unit::kNumber:
    case Unit::kWhole:
      break;
    case Unit::kShare:
      axis.divisor = 0.01;
      axis.unit = "%";
      break;
    case Unit::kSeconds:
      largest(kTimes);
      break;
    case Unit::kBytes:
      largest(kSizes);
      break;
  }
}

// 1, 2 or 5 times a power of ten, at least `least`.
double round_step(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

void linear_ticks(Axis& axis, Unit unit, Scale scale, int ticks) {
  double step = round_step((axis.high - axis.low) / ticks);
  if (unit == Unit::kWhole) step = std::max(step, 1.0);
  if (scale != Scale::kTight) {
    axis.low = step * std::floor(axis.low / step + 1e-9);
    axis.high = step * std::ceil(axis.high / step - 1e-9);
  }
  const int decimals = std::max(0, -static_cast<int>(std::floor(std::log10(step) + 1e-9)));
  for (double k = std::ceil(axis.low / step - 1e-9); k * step <= axis.high + 1e-9 * step; ++k) {
    const double at = k == 0 ? 0 : k * step;  // ceil() may give -0
    const double size = std::abs(axis.high);
    axis.ticks.push_back({at, decimals > 0 && decimals <= 4 ? fmt::format("{:.{}f}", at, decimals)
                              : size >= 1e5 || decimals > 4 ? short_number(at)
                                                            : fmt::format("{:.0f}", at)});
  }
}

void log_ticks(Axis& axis, int ticks) {
  const double first = std::floor(std::log10(axis.low)), last = std::ceil(std::log10(axis.high));
  const bool few = last - first <= 2;
  const double stride = std::max(1.0, std::ceil((last - first) / ticks));
  for (double exponent = first; exponent <= last; exponent += stride) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor > 1 && !few) break;
      const double at = factor * std::pow(10, exponent);
      if (at >= axis.low * (1 - 1e-9) && at <= axis.high * (1 + 1e-9)) {
        axis.ticks.push_back({at, short_number(at)});
      }
    }
  }
}

}  // namespace

std::string short_number(double value) {
  const double size = std::abs(value);
  if (size == 0) return "0";
  if (size >= 1e15 || size < 1e-3) return fmt::format("{:.3g}", value);
  struct Word {
    double from;
    std::string_view letter;
  };
  for (const Word& word : {Word{1e12, "T"}, Word{1e9, "G"}, Word{1e6, "M"}, Word{1e4, "k"}}) {
    const double scale = word.from == 1e4 ? 1e3 : word.from;
    if (size >= word.from) return fmt::format("{:.4g} {}", value / scale, word.letter);
  }
  return fmt::format("{:.4g}", value);
}

double Axis::place(double value) const {
  const double shown = value / divisor;
  if (!log) return (shown - low) / (high - low);
  return (std::log(std::max(shown, low)) - std::log(low)) / (std::log(high) - std::log(low));
}

Axis make_axis(double low, double high, Unit unit, Scale scale, int ticks) {
  Axis axis;
  choose_unit(axis, high, unit);
  axis.low = low / axis.divisor;
  axis.high = high / axis.divisor;
  axis.log = scale == Scale::kLog;
  if (axis.log) {
    if (axis.high < axis.low * 2) {  // one value: half a decade around it
      axis.low /= 2;
      axis.high *= 2;
    }
    log_ticks(axis, ticks);
    return axis;
  }
  if (scale == Scale::kFromZero) axis.low = std::min(axis.low, 0.0);
  if (axis.high <= axis.low) {
    const double room = std::max(std::abs(axis.low) * 0.1, unit == Unit::kWhole ? 1.0 : 1e-6);
    axis.low -= axis.low == 0 ? 0 : room;
    axis.high += room;
  }
  linear_ticks(axis, unit, scale, ticks);
  return axis;
}

}  // namespace tri::report
