#include "report/tables.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "report/axis.h"
#include "tri/program.h"

namespace tri::report {
namespace {

std::string word(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string bytes(std::optional<double> value) {
  return value && *value >= 0 && *value < 0x1p63 ? bytes_text(static_cast<uint64_t>(*value)) : "-";
}

std::string percent(std::optional<double> share) {
  return share ? fmt::format("{:.2f} %", 100 * *share) : "-";
}

std::string plain(std::optional<double> value) { return value ? short_number(*value) : "-"; }

struct Cell {
  std::string text, small;
  std::optional<double> rank;  // larger is better
};

struct Column {
  std::string_view title;
  std::function<Cell(const RunLog&)> cell;
};

std::string seconds_text(double seconds) {
  if (seconds < 120) return fmt::format("{:.3g} s", seconds);
  if (seconds < 7200) return fmt::format("{:.1f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

std::optional<double> negated(std::optional<double> value) {
  return value ? std::optional(-*value) : std::nullopt;
}

Cell batch_cell(const RunLog& run) {
  const auto found = run.summary.find("batch");
  if (found == run.summary.end() || !found->is_object()) return {"-", "", {}};
  const auto first = number(*found, "first"), last = number(*found, "last");
  const auto low = number(*found, "min"), high = number(*found, "max");
  std::string text = plain(first);
  if (first != last) text += " &rarr; " + plain(last);
  return {text, low != high ? fmt::format("{} to {}", plain(low), plain(high)) : "", {}};
}

Cell status_cell(const RunLog& run) {
  const std::string status = word(run.summary, "status");
  if (status.empty()) return {"unknown", "no summary.json", {}};
  return {fmt::format("<span class=\"{}\">{}</span>", escaped(status), escaped(status)),
          fmt::format("{} epochs, {} steps", plain(number(run.summary, "epochs")),
                      plain(number(run.summary, "steps"))),
          {}};
}

const std::vector<Column>& columns() {
  static const std::vector<Column> kColumns = {
      {"status", status_cell},
      {"test accuracy",
       [](const RunLog& run) -> Cell {
         const auto now = number(run.summary, "test_accuracy");
         return {percent(now), "best " + percent(number(run.summary, "best_test_accuracy")), now};
       }},
      {"seconds per epoch",
       [](const RunLog& run) -> Cell {
         const auto spent = number(run.summary, "epoch_seconds");
         return {plain(spent), plain(number(run.summary, "images_per_second")) + " images/s",
                 negated(spent)};
       }},
      {"engine peak",
       [](const RunLog& run) -> Cell {
         const auto peak = number(run.summary, "engine_peak_bytes");
         return {bytes(peak), plain(number(run.summary, "params")) + " parameters", negated(peak)};
       }},
      {"process peak",
       [](const RunLog& run) -> Cell {
         const auto peak = number(run.summary, "process_peak_bytes");
         return {bytes(peak), "of " + bytes(number(run.summary, "ceiling_bytes")), negated(peak)};
       }},
      {"score",
       [](const RunLog& run) -> Cell {
         const auto score = number(run.summary, "score");
         return {plain(score), "% / (s x GB)", score};
       }},
      {"batch", batch_cell},
      {"decisions",
       [](const RunLog& run) -> Cell {
         const auto spent = number(run.summary, "control_seconds");
         return {plain(static_cast<double>(run.decision_count)),
                 spent && *spent > 0 ? seconds_text(*spent) + " of control" : "",
                 {}};
       }},
  };
  return kColumns;
}

}  // namespace

void write_headline(Page& page, const std::vector<RunLog>& runs) {
  const bool many = runs.size() > 1;
  page.put("<div class=\"card\" id=\"headline\"><table class=\"{}\"><thead><tr>",
           many ? "many" : "one");
  if (many) page.raw("<th>run</th>");
  for (const Column& column : columns()) page.put("<th>{}</th>", column.title);
  page.raw("</tr></thead><tbody>\n");
  std::vector<std::optional<double>> best(columns().size());
  for (const RunLog& run : runs) {
    for (size_t i = 0; i < best.size(); ++i)
      best[i] = std::max(best[i], columns()[i].cell(run).rank);
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    page.raw("<tr>");
    if (many) {
      page.put(
          "<td><i class=\"chip\" style=\"background: var(--c{})\"></i>{}<small>{}, seed {}"
          "</small></td>",
          i % 8, escaped(runs[i].name), escaped(word(runs[i].summary, "method")),
          plain(number(runs[i].summary, "seed")));
    }
    for (size_t c = 0; c < columns().size(); ++c) {
      const Cell cell = columns()[c].cell(runs[i]);
      page.put("<td{}>{}<small>{}</small></td>",
               cell.rank && cell.rank == best[c] ? " class=\"best\"" : "", cell.text,
               cell.small.empty() ? "&nbsp;" : escaped(cell.small));
    }
    page.raw("</tr>\n");
  }
  page.raw("</tbody></table></div>\n");
}

void write_decisions(Page& page, const RunLog& run) {
  page.raw("<div class=\"card\">");
  if (run.decisions.empty()) {
    page.raw("<p class=\"empty\">No decision was made and no warning given.</p></div>\n");
    return;
  }
  if (run.decisions_left_out > 0) {
    page.put("<p class=\"note\">{} lines in the middle are left out; metrics.jsonl has all.</p>",
             run.decisions_left_out);
  }
  page.raw(
      "<div class=\"scroll\"><table><thead><tr><th class=\"number\">step</th>"
      "<th class=\"number\">epoch</th><th>what</th><th>change</th><th>reason</th></tr></thead>"
      "<tbody>\n");
  for (const Decision& made : run.decisions) {
    const bool warning = made.what.empty();
    page.put("<tr{}><td class=\"number\">{}</td><td class=\"number\">{:.2f}</td><td>{}</td><td>",
             warning ? " class=\"warning\"" : "", made.step, made.epoch,
             warning ? "warning" : escaped(made.what));
    if (!made.to.empty()) {
      page.put("{} <span class=\"arrow\">&rarr;</span> {}", escaped(made.from), escaped(made.to));
    }
    page.put("</td><td>{}</td></tr>\n", escaped(made.reason));
  }
  page.raw("</tbody></table></div></div>\n");
}

namespace {

void write_one_configuration(Page& page, const RunLog& run) {
  page.raw("<div class=\"card config\">");
  std::string group;
  bool open = false;
  for (const ConfigLine& line : run.config) {
    if (!open || line.group != group) {
      if (open) page.raw("</table>");
      group = line.group;
      open = true;
      page.put("<table><caption>{}</caption>\n", escaped(group));
    }
    const bool chosen = !line.origin.empty() && line.origin != "default";
    page.put("<tr><td>{}</td><td class=\"{}\" title=\"{}\">{}</td></tr>\n", escaped(line.key),
             chosen ? "set" : "", escaped(line.origin), escaped(line.value));
  }
  if (open) page.raw("</table>");
  page.raw(
      "</div><p class=\"note\">Bold: not the default. Hover for where a value came from.</p>\n");
}

using Values = std::vector<std::string>;  // of one option, by run

void write_compared(Page& page, const std::vector<RunLog>& runs,
                    const std::vector<std::pair<std::string, Values>>& rows) {
  page.raw("<table class=\"compare\"><thead><tr><th>option</th>");
  for (size_t i = 0; i < runs.size(); ++i) {
    page.put("<th><i class=\"chip\" style=\"background: var(--c{})\"></i>{}</th>", i % 8,
             escaped(runs[i].name));
  }
  page.raw("</tr></thead><tbody>\n");
  for (const auto& [key, values] : rows) {
    page.put("<tr><td>{}</td>", escaped(key));
    for (const std::string& value : values) page.put("<td>{}</td>", escaped(value));
    page.raw("</tr>\n");
  }
  page.raw("</tbody></table>");
}

}  // namespace

void write_configuration(Page& page, const std::vector<RunLog>& runs) {
  if (std::ranges::all_of(runs, [](const RunLog& run) { return run.config.empty(); })) {
    page.raw("<p class=\"empty\">No config.toml was found.</p>\n");
    return;
  }
  if (runs.size() == 1) return write_one_configuration(page, runs.front());
  std::vector<std::pair<std::string, Values>> equal, different;
  std::set<std::string> done;
  for (const RunLog& shown : runs) {
    for (const ConfigLine& line : shown.config) {
      if (!done.insert(line.key).second) continue;
      Values values;
      for (const RunLog& run : runs) {
        const auto found = std::ranges::find(run.config, line.key, &ConfigLine::key);
        values.push_back(found == run.config.end() ? "-" : found->value);
      }
      const bool same =
          std::ranges::count(values, values.front()) == static_cast<ptrdiff_t>(values.size());
      (same ? equal : different).emplace_back(line.key, std::move(values));
    }
  }
  page.raw("<div class=\"card\">");
  write_compared(page, runs, different);
  page.put("<details><summary>{} options that all share</summary>\n", equal.size());
  write_compared(page, runs, equal);
  page.raw("</details></div>\n");
}

}  // namespace tri::report
