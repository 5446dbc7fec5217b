#pragma once
// apps/report. A row per layer and time to the right, as coloured SVG. In: a grid. Out: a figure of
// the page. Formats get a colour each; numbers a
// logarithmic scale that reads without colour vision.
#include <cstdint>
#include <string_view>

#include "report/layer_grid.h"
#include "report/page.h"

namespace tri::report {

struct BandFigure {
  std::string_view id = {}, title = {}, note = {}, if_empty = {};
  std::string_view value_name = {};  // in the text under the pointer
  uint64_t last_step = 0;
  bool wide = false;  // over both columns of the page
};

void write_format_bands(Page& page, const LayerGrid& grid, const BandFigure& figure);
void write_heat_bands(Page& page, const LayerGrid& grid, const BandFigure& figure);

}  // namespace tri::report
