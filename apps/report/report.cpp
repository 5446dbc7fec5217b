#include "report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "report/bands.h"
#include "report/chart.h"
#include "report/page.h"
#include "report/run_log.h"
#include "report/style.h"
#include "report/tables.h"
#include "tri/program.h"

namespace tri::report {
namespace {

using Runs = std::vector<RunLog>;

// One quantity of a chart: a curve for each run.
struct Kind {
  std::string_view label;
  Thinned RunLog::*curve;
  Stroke stroke = Stroke::kSolid;
  size_t colour = 0;
};

// Of one run the kinds have colours; of several the runs have, and the kinds differ by stroke.
void fill(Chart& chart, const Runs& runs, const std::vector<Kind>& kinds) {
  const bool many = runs.size() > 1;
  size_t shown_kinds = 0;
  for (size_t k = 0; k < kinds.size(); ++k) {
    bool any = false;
    for (size_t r = 0; r < runs.size(); ++r) {
      const Thinned& curve = runs[r].*kinds[k].curve;
      if (curve.empty()) continue;
      any = true;
      const std::string label =
          many ? fmt::format("{}{}{}", runs[r].name, kinds.size() > 1 ? ", " : "",
                             kinds.size() > 1 ? kinds[k].label : "")
               : std::string(kinds[k].label);
      chart.curves.push_back({label, many ? r : kinds[k].colour, kinds[k].stroke, curve.points()});
    }
    if (!any) continue;
    ++shown_kinds;
    chart.legend.push_back({std::string(kinds[k].label),
                            many ? -1 : static_cast<int>(kinds[k].colour), kinds[k].stroke});
  }
  if (shown_kinds < 2) chart.legend.clear();
  if (many) {
    std::vector<LegendEntry> named;
    for (size_t r = 0; r < runs.size(); ++r) named.push_back({runs[r].name, static_cast<int>(r)});
    chart.legend.insert(chart.legend.begin(), named.begin(), named.end());
  }
}

void write(Page& page, const Runs& runs, Chart chart, const std::vector<Kind>& kinds) {
  fill(chart, runs, kinds);
  write_chart(page, chart);
}

void write_curves(Page& page, const Runs& runs) {
  page.raw("<h2>Learning</h2><div class=\"grid\">\n");
  write(page, runs,
        {.id = "loss", .title = "Loss", .x_title = "epoch", .if_empty = "No epoch is over yet."},
        {{"training, mean of an epoch", &RunLog::train_loss},
         {"test", &RunLog::test_loss, Stroke::kDashed, 1},
         {"validation", &RunLog::val_loss, Stroke::kDotted, 2},
         {"training, by step", &RunLog::step_loss, Stroke::kFaint}});
  write(page, runs,
        {.id = "accuracy",
         .title = "Accuracy",
         .x_title = "epoch",
         .y_unit = Unit::kShare,
         .if_empty = "No epoch is over yet."},
        {{"training", &RunLog::train_accuracy, Stroke::kDashed},
         {"test", &RunLog::test_accuracy, Stroke::kSolid, 1},
         {"validation", &RunLog::val_accuracy, Stroke::kDotted, 2}});
  write(page, runs,
        {.id = "rate", .title = "Learning rate", .x_title = "epoch", .y_scale = Scale::kFromZero},
        {{"learning rate", &RunLog::learning_rate}});
  write(page, runs,
        {.id = "score",
         .title = "Efficiency score",
         .note = "test accuracy in % / (seconds of the epoch x engine peak in GB)",
         .x_title = "epoch",
         .y_scale = Scale::kFromZero,
         .if_empty = "No epoch is over yet."},
        {{"score", &RunLog::epoch_score}});
  page.raw("</div><h2>Time and memory</h2><div class=\"grid\">\n");
  write(page, runs,
        {.id = "seconds",
         .title = "Time of an epoch",
         .x_title = "epoch",
         .y_unit = Unit::kSeconds,
         .y_scale = Scale::kFromZero,
         .if_empty = "No epoch is over yet."},
        {{"training", &RunLog::epoch_seconds}});
  write(page, runs,
        {.id = "throughput",
         .title = "Throughput",
         .note = "images per second of training",
         .x_title = "epoch",
         .y_scale = Scale::kFromZero},
        {{"images per second", &RunLog::throughput}});
  write(page, runs,
        {.id = "peak",
         .title = "Engine peak",
         .x_title = "epoch",
         .y_unit = Unit::kBytes,
         .y_scale = Scale::kFromZero,
         .if_empty = "No epoch is over yet."},
        {{"engine peak", &RunLog::epoch_peak}});
  write(page, runs,
        {.id = "batch",
         .title = "Batch size",
         .x_title = "step",
         .y_unit = Unit::kWhole,
         .y_scale = Scale::kFromZero,
         .levels = true},
        {{"samples", &RunLog::batch}});
}

double highest(const std::vector<Curve>& curves) {
  double most = 0;
  for (const Curve& curve : curves) {
    for (const Point& point : curve.points) most = std::max(most, point.y);
  }
  return most;
}

// Charts in which runs would hide each other: one for each.
void write_memory(Page& page, const Runs& runs) {
  for (size_t i = 0; i < runs.size(); ++i) {
    const std::string id = i == 0 ? "memory" : fmt::format("memory-{}", i + 1);
    const std::string title =
        runs.size() == 1 ? "Memory" : fmt::format("Memory of {}", escaped(runs[i].name));
    Chart chart{.id = id,
                .title = title,
                .note = "of the process: what was planned, what was measured, and the ceiling",
                .x_title = "time",
                .x_unit = Unit::kSeconds,
                .y_unit = Unit::kBytes,
                .y_scale = Scale::kFromZero,
                .levels = true};
    const auto add = [&](std::string label, const Thinned& curve, size_t colour, Stroke stroke) {
      std::vector<Point> points = curve.points();
      if (points.empty()) return;
      points.push_back({runs[i].last_seconds, points.back().y});
      chart.legend.push_back({label, static_cast<int>(colour), stroke});
      chart.curves.push_back({std::move(label), colour, stroke, std::move(points)});
    };
    add("measured", runs[i].measured_bytes, 0, Stroke::kSolid);
    add("planned", runs[i].planned_bytes, 2, Stroke::kDotted);
    // A ceiling far above would press the rest to the ground.
    constexpr double kFar = 4;
    const double most = highest(chart.curves);
    const std::vector<Point> ceiling = runs[i].ceiling_bytes.points();
    const bool near = std::ranges::any_of(
        ceiling, [&](const Point& point) { return most == 0 || point.y < kFar * most; });
    if (near) {
      add("ceiling", runs[i].ceiling_bytes, 1, Stroke::kDashed);
    } else if (!ceiling.empty()) {
      chart.legend.push_back({fmt::format("ceiling: {}, far above",
                                          bytes_text(static_cast<uint64_t>(ceiling.back().y))),
                              1, Stroke::kDashed});
    }
    write_chart(page, chart);
  }
  write(page, runs,
        {.id = "noise",
         .title = "Gradient noise scale",
         .note = "samples beyond which a larger batch buys little",
         .x_title = "step",
         .y_scale = Scale::kLog,
         .if_empty = "Not estimated in this run."},
        {{"noise scale", &RunLog::noise_scale}});
}

void write_layers(Page& page, const Runs& runs) {
  const bool many = runs.size() > 1;
  page.raw("<h2>Layers</h2>\n");
  const auto each = [&](std::string_view id, std::string_view title, auto&& write_one) {
    page.raw("<div class=\"grid\">\n");
    for (size_t i = 0; i < runs.size(); ++i) {
      const std::string own_id = i == 0 ? std::string(id) : fmt::format("{}-{}", id, i + 1);
      const std::string own_title =
          many ? fmt::format("{} of {}", title, escaped(runs[i].name)) : std::string(title);
      BandFigure figure{
          .id = own_id, .title = own_title, .last_step = runs[i].last_step, .wide = !many};
      write_one(runs[i], figure);
    }
    page.raw("</div>\n");
  };
  each("precision", "Precision", [&](const RunLog& run, BandFigure& figure) {
    figure.note = "format in which a layer keeps its output for the way back";
    figure.if_empty = "The run recorded no precision table.";
    write_format_bands(page, run.precision, figure);
  });
  each("curvature", "Curvature", [&](const RunLog& run, BandFigure& figure) {
    figure.note = "largest eigenvalue of the layer's block, logarithmic";
    figure.if_empty = "Not estimated in this run.";
    figure.value_name = "lambda";
    write_heat_bands(page, run.curvature, figure);
  });
  each("step-size", "Step size", [&](const RunLog& run, BandFigure& figure) {
    figure.note = "rate of each layer as its curvature set it, logarithmic";
    figure.if_empty = "No layer had a step size of its own.";
    figure.value_name = "step size";
    write_heat_bands(page, run.step_size, figure);
  });
}

std::string text_of(const RunLog& run, const char* key) {
  const auto found = run.summary.find(key);
  if (found == run.summary.end() || found->is_null()) return "?";
  return found->is_string() ? found->get<std::string>()
                            : found->dump(-1, ' ', false, Json::error_handler_t::replace);
}

void write_header(Page& page, const Runs& runs) {
  const std::string title =
      runs.size() == 1 ? escaped(runs.front().name) : fmt::format("{} runs", runs.size());
  page.put(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<meta name=\"color-scheme\" content=\"light dark\"><link rel=\"icon\" href=\"data:,\">"
      "<title>{} - Tri-Accel</title>\n<style>",
      title);
  page.raw(kStyle);
  page.put("</style></head><body><main>\n<h1>{}</h1>\n<p class=\"sub\">", title);
  if (runs.size() == 1) {
    const RunLog& run = runs.front();
    page.put("{} on {}, method {}, seed {}", escaped(text_of(run, "model")),
             escaped(text_of(run, "data")), escaped(text_of(run, "method")),
             escaped(text_of(run, "seed")));
    if (!run.end_reason.empty()) page.put("<br>{}", escaped(run.end_reason));
  } else {
    page.raw("side by side; green marks the best of a column");
  }
  page.raw("</p>\n");
}

void write_all_decisions(Page& page, const Runs& runs) {
  page.raw("<section id=\"decisions\">");
  for (const RunLog& run : runs) {
    page.put("<h2>Decisions{}{}</h2>\n", runs.size() > 1 ? " of " : "",
             runs.size() > 1 ? escaped(run.name) : "");
    write_decisions(page, run);
  }
  page.raw("</section>\n");
}

void write_footer(Page& page, const Runs& runs) {
  page.put("<footer>Written by triaccel {} from", version());
  for (const RunLog& run : runs) {
    page.put(
        " {}{}", escaped(run.directory),
        run.unreadable_lines > 0
            ? fmt::format(" ({} lines of metrics.jsonl could not be read)", run.unreadable_lines)
            : "");
  }
  page.raw("</footer>\n</main><div id=\"tip\"></div><script>");
  page.raw(kScript);
  page.raw("</script></body></html>\n");
}

}  // namespace

Result<void> write_report(const std::vector<std::string>& directories, const std::string& path) {
  Runs runs;
  for (const std::string& directory : directories) {
    TRI_ASSIGN(RunLog run, read_run(directory));
    runs.push_back(std::move(run));
  }
  TRI_ASSIGN(Page page, Page::create(path));
  write_header(page, runs);
  write_headline(page, runs);
  write_curves(page, runs);
  write_memory(page, runs);
  page.raw("</div>\n");
  write_layers(page, runs);
  write_all_decisions(page, runs);
  page.raw("<section id=\"configuration\"><h2>Configuration</h2>\n");
  write_configuration(page, runs);
  page.raw("</section>\n");
  write_footer(page, runs);
  return page.finish();
}

}  // namespace tri::report
