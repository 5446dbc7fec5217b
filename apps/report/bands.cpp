#include "report/bands.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>

#include "report/axis.h"
#include "report/chart.h"
#include "report/run_log.h"

namespace tri::report {
namespace {

struct Colour {
  double r, g, b;
};
// Viridis (Smith and van der Walt), every eighth of the way: even in lightness.
constexpr std::array<Colour, 9> kViridis = {{{68, 1, 84},
                                             {71, 44, 122},
                                             {59, 81, 139},
                                             {44, 113, 142},
                                             {33, 144, 141},
                                             {39, 173, 129},
                                             {92, 200, 99},
                                             {170, 220, 50},
                                             {253, 231, 37}}};

std::string viridis(double share) {
  const double at = std::clamp(share, 0.0, 1.0) * (kViridis.size() - 1);
  const size_t first = std::min(static_cast<size_t>(at), kViridis.size() - 2);
  const double rest = at - static_cast<double>(first);
  const auto mix = [&](double Colour::*part) {
    return std::lround((1 - rest) * (kViridis[first].*part) + rest * (kViridis[first + 1].*part));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(&Colour::r), mix(&Colour::g), mix(&Colour::b));
}

struct Paint {
  std::function<std::string(float)> attribute;  // class or fill of a cell
  std::function<std::string(float)> text;       // value under the pointer
};

struct Geometry {
  double width, left, row, top = 2;
  size_t label_every;

  Geometry(const LayerGrid& grid, bool wide) : width(wide ? 1140 : 560) {
    constexpr double kMostHeight = 640, kLeastRow = 7, kMostRow = 17, kLabelHeight = 11;
    const auto rows = static_cast<double>(grid.rows());
    row = std::clamp(kMostHeight / rows, kLeastRow, kMostRow);
    label_every = static_cast<size_t>(std::ceil(kLabelHeight / row));
    size_t longest = 1;
    for (size_t i = 0; i < grid.rows(); ++i) longest = std::max(longest, grid.name(i).size());
    left = 12 + 5.7 * static_cast<double>(std::min<size_t>(longest, most_letters(wide)));
  }
  static size_t most_letters(bool wide) { return wide ? 34 : 24; }
};

// The end of a long name tells layers apart.
std::string shortened(const std::string& name, size_t most) {
  return name.size() <= most ? name : ".." + name.substr(name.size() - most + 2);
}

void write_row(Page& page, const LayerGrid& grid, size_t row, const Geometry& place, const Axis& x,
               uint64_t last_step, const Paint& paint) {
  const double y = place.top + place.row * static_cast<double>(row);
  const auto px = [&](uint64_t step) {
    const double share = x.place(static_cast<double>(std::min(step, last_step)));
    return place.left + (place.width - place.left - 12) * share;
  };
  constexpr double kOverlap = 0.5;  // no background between neighbours, however they are rounded
  // A cell reaches to the next change.
  for (size_t column = 0; column < LayerGrid::kColumns;) {
    const float value = grid.at(row, column);
    size_t next = column + 1;
    while (next < LayerGrid::kColumns &&
           (std::isnan(grid.at(row, next)) || grid.at(row, next) == value)) {
      ++next;
    }
    const uint64_t from = column * grid.steps_per_column();
    const uint64_t to = next == LayerGrid::kColumns ? last_step : next * grid.steps_per_column();
    if (!std::isnan(value) && (to > from || last_step == 0)) {
      page.put("<rect {} x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\">",
               paint.attribute(value), px(from), y, std::max(px(to) - px(from), 1.0) + kOverlap,
               place.row - (place.row > 9 ? 1.5 : 0.5));
      page.put("<title>{}, from step {}: {}</title></rect>", escaped(grid.name(row)), from,
               paint.text(value));
    }
    column = next;
  }
}

void write_bands(Page& page, const LayerGrid& grid, const BandFigure& figure, const Paint& paint) {
  const Geometry place(grid, figure.wide);
  const double bottom = place.top + place.row * static_cast<double>(grid.rows());
  const Axis x = make_axis(0, static_cast<double>(std::max<uint64_t>(figure.last_step, 1)),
                           Unit::kWhole, Scale::kTight, figure.wide ? 12 : 6);
  page.put("<svg class=\"bands\" viewBox=\"0 0 {} {:.0f}\" role=\"img\" aria-label=\"{}\">",
           place.width, bottom + 36, figure.title);
  for (size_t row = 0; row < grid.rows(); ++row) {
    if (row % place.label_every == 0) {
      page.put("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>", place.left - 6,
               place.top + place.row * (static_cast<double>(row) + 0.5) + 2.6,
               escaped(shortened(grid.name(row), Geometry::most_letters(figure.wide))));
    }
    write_row(page, grid, row, place, x, figure.last_step, paint);
  }
  for (const Tick& tick : x.ticks) {
    const double at = place.left + (place.width - place.left - 12) * x.place(tick.at);
    page.put("<path class=\"mark\" d=\"M{:.1f} {:.1f}v4\"/>", at, bottom + 1);
    page.put("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>", at, bottom + 16,
             tick.label);
  }
  page.put(
      "<text class=\"title\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">step</text></svg>",
      (place.left + place.width) / 2, bottom + 32);
}

bool open_or_say_empty(Page& page, const LayerGrid& grid, const BandFigure& figure) {
  open_figure(page, figure.id, figure.title, "", figure.note, figure.wide ? "wide" : "");
  if (grid.rows() > 0) return true;
  page.put("<p class=\"empty\">{}</p>", figure.if_empty);
  close_figure(page);
  return false;
}

}  // namespace

void write_format_bands(Page& page, const LayerGrid& grid, const BandFigure& figure) {
  if (!open_or_say_empty(page, grid, figure)) return;
  std::set<size_t> used;
  for (size_t row = 0; row < grid.rows(); ++row) {
    for (size_t column = 0; column < LayerGrid::kColumns; ++column) {
      if (!std::isnan(grid.at(row, column))) used.insert(static_cast<size_t>(grid.at(row, column)));
    }
  }
  page.raw("<ul class=\"legend\">");
  for (const size_t format : used) {
    page.put("<li><i class=\"f{}\"></i>{}</li>", format, kFormatNames[format]);
  }
  page.raw("</ul>");
  write_bands(page, grid, figure,
              {[](float value) { return fmt::format("class=\"f{}\"", static_cast<int>(value)); },
               [](float value) { return std::string(kFormatNames[static_cast<size_t>(value)]); }});
  close_figure(page);
}

void write_heat_bands(Page& page, const LayerGrid& grid, const BandFigure& figure) {
  if (!open_or_say_empty(page, grid, figure)) return;
  float low = std::numeric_limits<float>::infinity(), high = 0;
  for (size_t row = 0; row < grid.rows(); ++row) {
    for (size_t column = 0; column < LayerGrid::kColumns; ++column) {
      const float value = grid.at(row, column);
      if (std::isnan(value) || value <= 0) continue;
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  if (!(low <= high)) low = high = 1;
  const auto share = [=](float value) -> double {
    if (!(high > low)) return 0.5;
    return value <= 0 ? 0 : std::log(value / low) / std::log(high / low);
  };
  page.put("<p class=\"scale\">{}<i></i>{}</p>", short_number(low), short_number(high));
  write_bands(
      page, grid, figure,
      {[&](float value) { return fmt::format("fill=\"{}\"", viridis(share(value))); },
       [&](float value) { return fmt::format("{} {}", figure.value_name, short_number(value)); }});
  close_figure(page);
}

}  // namespace tri::report
