#pragma once
// apps/report. Curves as SVG. In: points and how to show them. Out: a figure of the page with
// heading, legend, axes with units and, where the browser runs scripts, values under the pointer.
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "report/axis.h"
#include "report/page.h"
#include "report/thinned.h"

namespace tri::report {

enum class Stroke { kSolid, kDashed, kDotted, kFaint };

struct Curve {
  std::string label;
  size_t colour = 0;  // of the palette in style.cpp, taken round
  Stroke stroke = Stroke::kSolid;
  std::vector<Point> points;
};

struct LegendEntry {
  std::string label;
  int colour = -1;  // -1: the colour of text
  Stroke stroke = Stroke::kSolid;
};

struct Chart {
  std::string_view id = {}, title = {}, note = {};  // note: what the reader cannot see
  std::string_view x_title = {};
  Unit x_unit = Unit::kWhole, y_unit = Unit::kNumber;
  Scale y_scale = Scale::kLinear;
  bool levels = false;  // a value holds until the next one
  std::vector<Curve> curves = {};
  std::vector<LegendEntry> legend = {};  // may be empty
  std::string_view if_empty = "Nothing recorded.";
};

void write_chart(Page& page, const Chart& chart);

// The shared parts of every figure.
void open_figure(Page& page, std::string_view id, std::string_view title, std::string_view unit,
                 std::string_view note, std::string_view more_classes = "");
void write_legend(Page& page, const std::vector<LegendEntry>& entries);
void close_figure(Page& page);

}  // namespace tri::report
