#include "report/chart.h"

#include <algorithm>
#include <limits>

namespace tri::report {
namespace {

// In the units of the view box, which is as wide as a card of two columns.
constexpr double kWidth = 560, kHeight = 230;
constexpr double kTop = 10, kRight = 16, kBottom = 38;
constexpr double kLetter = 6.4;  // width of a digit at the size of tick labels

struct Extent {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

std::string_view stroke_class(Stroke stroke) {
  switch (stroke) {
    case Stroke::kSolid:
      return "solid";
    case Stroke::kDashed:
      return "dashed";
    case Stroke::kDotted:
      return "dotted";
    case Stroke::kFaint:
      return "faint";
  }
  return "";
}

struct Frame {
  Axis x, y;
  double left = 0;

  double width() const { return kWidth - left - kRight; }
  double height() const { return kHeight - kTop - kBottom; }
  double px(double value) const { return left + width() * x.place(value); }
  double py(double value) const { return kTop + height() * (1 - y.place(value)); }
};

void write_axes(Page& page, const Frame& frame, std::string_view x_title) {
  const double bottom = kTop + frame.height();
  for (const Tick& tick : frame.y.ticks) {
    const double y = frame.py(tick.at * frame.y.divisor);
    page.put("<path class=\"line\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>", frame.left, y, kWidth - kRight);
    page.put("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", frame.left - 7, y + 4,
             tick.label);
  }
  for (const Tick& tick : frame.x.ticks) {
    const double x = frame.px(tick.at * frame.x.divisor);
    page.put("<path class=\"mark\" d=\"M{:.1f} {:.1f}v4\"/>", x, bottom);
    page.put("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>", x, bottom + 17,
             tick.label);
  }
  page.put("<path class=\"mark\" d=\"M{:.1f} {:.1f}H{:.1f}\"/>", frame.left, bottom,
           kWidth - kRight);
  page.put("<text class=\"title\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}{}</text>",
           frame.left + frame.width() / 2, kHeight - 4, x_title,
           frame.x.unit.empty() ? "" : fmt::format(" ({})", frame.x.unit));
}

void write_curve(Page& page, const Frame& frame, const Curve& curve, bool levels) {
  if (curve.points.size() == 1) {  // a run of one epoch shall be seen
    page.put("<circle class=\"c{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\"/>", curve.colour % 8,
             frame.px(curve.points[0].x), frame.py(curve.points[0].y));
  }
  page.put("<polyline class=\"c{} {}\" data-label=\"{}\" points=\"", curve.colour % 8,
           stroke_class(curve.stroke), escaped(curve.label));
  double before = 0;
  for (size_t i = 0; i < curve.points.size(); ++i) {
    const double x = frame.px(curve.points[i].x), y = frame.py(curve.points[i].y);
    if (levels && i > 0 && y != before) page.put("{:.1f},{:.1f} ", x, before);
    page.put("{:.1f},{:.1f} ", x, y);
    before = y;
  }
  page.raw("\"/>");
}

Frame make_frame(const Chart& chart, const Extent& x, const Extent& y) {
  Frame frame;
  frame.x = make_axis(x.low, x.high, chart.x_unit, Scale::kTight, 7);
  // Air above and below, but none below zero for what has none.
  const double air = chart.y_scale == Scale::kLog ? 0 : 0.06 * (y.high - y.low);
  const double low = y.low >= 0 ? std::max(0.0, y.low - air) : y.low - air;
  double high = y.high + air;
  if (chart.y_unit == Unit::kShare && y.high <= 1) high = std::min(high, 1.0);
  frame.y = make_axis(low, high, chart.y_unit, chart.y_scale, 5);
  size_t longest = 1;
  for (const Tick& tick : frame.y.ticks) longest = std::max(longest, tick.label.size());
  frame.left = 14 + kLetter * static_cast<double>(longest);
  return frame;
}

}  // namespace

void open_figure(Page& page, std::string_view id, std::string_view title, std::string_view unit,
                 std::string_view note, std::string_view more_classes) {
  page.put("<figure class=\"card {}\" id=\"{}\"><figcaption><h3>{}</h3>", more_classes, id, title);
  if (!unit.empty()) page.put("<span class=\"unit\">{}</span>", unit);
  if (!note.empty()) page.put("<span class=\"note\">{}</span>", note);
  page.raw("</figcaption>\n");
}

void write_legend(Page& page, const std::vector<LegendEntry>& entries) {
  if (entries.empty()) return;
  page.raw("<ul class=\"legend\">");
  for (const LegendEntry& entry : entries) {
    const std::string colour = entry.colour < 0 ? "plain" : fmt::format("c{}", entry.colour % 8);
    page.put("<li><svg viewBox=\"0 0 26 8\"><path class=\"{} {}\" d=\"M1 4H25\"/></svg>{}</li>",
             colour, stroke_class(entry.stroke), escaped(entry.label));
  }
  page.raw("</ul>\n");
}

void close_figure(Page& page) { page.raw("</figure>\n"); }

void write_chart(Page& page, const Chart& chart) {
  Extent x, y;
  x.include(0);  // charts over the same thing line up
  for (const Curve& curve : chart.curves) {
    for (const Point& point : curve.points) {
      if (chart.y_scale == Scale::kLog && point.y <= 0) continue;
      x.include(point.x);
      y.include(point.y);
    }
  }
  if (y.empty()) {
    open_figure(page, chart.id, chart.title, "", chart.note);
    page.put("<p class=\"empty\">{}</p>", chart.if_empty);
    return close_figure(page);
  }
  const Frame frame = make_frame(chart, x, y);
  open_figure(page, chart.id, chart.title, frame.y.unit, chart.note);
  write_legend(page, chart.legend);
  page.put("<svg class=\"chart\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\" ", kWidth,
           kHeight, chart.title);
  page.put("data-x=\"{:.6g} {:.6g} {:.1f} {:.1f}\" ", frame.x.low, frame.x.high, frame.left,
           kWidth - kRight);
  page.put("data-y=\"{:.6g} {:.6g} {:.1f} {:.1f} {}\" ", frame.y.low, frame.y.high,
           kTop + frame.height(), kTop, frame.y.log ? 1 : 0);
  page.put("data-units=\"{}|{}|{}\">", chart.x_title, frame.x.unit, frame.y.unit);
  write_axes(page, frame, chart.x_title);
  for (const Curve& curve : chart.curves) write_curve(page, frame, curve, chart.levels);
  page.raw("<path class=\"cursor\" d=\"\"/></svg>\n");
  close_figure(page);
}

}  // namespace tri::report
