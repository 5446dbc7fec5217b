#pragma once
// apps/report. Round numbers along an axis. In: the range of the data and what it counts. Out: the
// range that is shown, its unit, and ticks with labels.
#include <string>
#include <string_view>
#include <vector>

namespace tri::report {

enum class Unit { kNumber, kWhole, kShare, kSeconds, kBytes };
// kTight shows the range as given; kLinear and kFromZero round it to ticks.
enum class Scale { kTight, kLinear, kFromZero, kLog };

struct Tick {
  double at = 0;  // in the unit that is shown
  std::string label;
};

struct Axis {
  double low = 0, high = 1;  // in the unit that is shown
  double divisor = 1;        // data / divisor is in that unit
  std::string_view unit;     // "MiB", "%"; empty for plain numbers
  bool log = false;
  std::vector<Tick> ticks;

  // Where a value of the data lies: 0 at low, 1 at high.
  double place(double value) const;
};

// REQUIRES: low <= high, both finite; above 0 for kLog. At most `ticks` + 2 ticks.
Axis make_axis(double low, double high, Unit unit, Scale scale, int ticks);

// "1.5 k", "0.0032": four digits at most, for labels and tables.
std::string short_number(double value);

}  // namespace tri::report
