#include "train/panel.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "base/bytes.h"

namespace tri::train {
namespace {

constexpr size_t kUsualColumns = 80;
constexpr size_t kFewestColumns = 20;  // below, a panel only wraps; lines are written instead

// Bytes that do not continue a UTF-8 character: columns, as we use no wide ones.
size_t columns_of(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }));
}

std::string cut(std::string_view text, size_t columns) {
  size_t end = 0, seen = 0;
  while (end < text.size()) {
    if ((static_cast<uint8_t>(text[end]) & 0xc0) != 0x80 && seen++ == columns) break;
    ++end;
  }
  return std::string(text.substr(0, end));
}

// U+2588 is a full block, U+2589 to U+258F its eighths from seven down to one.
std::string bar(double share, size_t columns, bool utf8) {
  share = std::clamp(std::isfinite(share) ? share : 0.0, 0.0, 1.0);
  const auto eighths = static_cast<size_t>(std::lround(share * static_cast<double>(8 * columns)));
  const size_t full = eighths / 8;
  std::string text;
  if (!utf8) {
    text.append(full, '#').append(columns - full, '-');
    return "[" + text + "]";
  }
  for (size_t i = 0; i < full; ++i) text += "\xe2\x96\x88";
  size_t used = full;
  if (eighths % 8 != 0) {
    text += "\xe2\x96";
    text += static_cast<char>(0x90 - eighths % 8);
    ++used;
  }
  return "[" + text + std::string(columns - used, ' ') + "]";
}

std::string percent(double share, int decimals) {
  return fmt::format("{:.{}f} %", 100 * share, decimals);
}

std::string loss_text(const PanelState& state) {
  return state.loss ? fmt::format("loss {:.4f}", *state.loss) : "loss -";
}

std::string accuracy_text(const PanelState& state) {
  return "accuracy " + (state.accuracy ? percent(*state.accuracy, 2) : "-");
}

// Nothing where the last is the best.
std::string best_text(const PanelState& state) {
  const bool was_better =
      state.accuracy && state.best_accuracy && *state.best_accuracy > *state.accuracy;
  return was_better ? fmt::format("(best {})", percent(*state.best_accuracy, 2)) : "";
}

std::string memory_text(const PanelState& state) {
  std::string used = base::format_bytes(state.memory_bytes);
  if (state.ceiling_bytes == 0) return used;
  return fmt::format("{} of {}", used, base::format_bytes(state.ceiling_bytes));
}

// Rounded shares of what is there.
std::vector<std::string> precision_cells(const PanelState& state) {
  std::vector<std::string> cells;
  for (const auto& [precision, share] : state.precisions) {
    if (share > 0) cells.push_back(fmt::format("{} {}", precision, percent(share, 0)));
  }
  return cells;
}

// Puts cells into lines, as many as fit; a cell is never broken, only cut if it is too wide alone.
void flow(const std::vector<std::string>& cells, size_t columns, std::vector<std::string>& lines) {
  constexpr std::string_view kGap = "  ";
  std::string line;
  for (const std::string& cell : cells) {
    if (!line.empty() && columns_of(line) + kGap.size() + columns_of(cell) > columns) {
      lines.push_back(std::exchange(line, {}));
    }
    line += line.empty() ? cut(cell, columns) : std::string(kGap) + cell;
  }
  if (!line.empty()) lines.push_back(line);
}

bool terminal_obeys() {
  const char* const kind = std::getenv("TERM");
  return kind != nullptr && std::string_view(kind) != "dumb" && *kind != '\0';
}

void write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // a closed terminal must not stop a training
    text.remove_prefix(static_cast<size_t>(written));
  }
}

size_t columns_of_terminal(int file) {
  winsize size = {};
  if (::ioctl(file, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsualColumns;
  return size.ws_col;
}

}  // namespace

std::string duration_text(double seconds) {
  if (!(seconds >= 0 && seconds < 1e9)) return "-";
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{}h {:02}m", whole / 3600, whole % 3600 / 60);
  return fmt::format("{}d {:02}h", whole / 86400, whole % 86400 / 3600);
}

std::vector<std::string> render_panel(const PanelState& state, size_t columns, bool utf8) {
  const size_t bar_columns = std::clamp<size_t>(columns / 4, 8, 30);
  const std::string epoch = fmt::format("epoch {}/{} {} {:>3.0f} %", state.epoch, state.epochs,
                                        bar(state.epoch_share, bar_columns, utf8),
                                        std::floor(100 * std::clamp(state.epoch_share, 0.0, 1.0)));
  std::vector<std::string> timing = {epoch, fmt::format("step {}", state.step)};
  if (state.seconds_left) timing.push_back(duration_text(*state.seconds_left) + " left");

  std::string memory = "memory ";
  if (state.ceiling_bytes > 0) {
    const double use =
        static_cast<double>(state.memory_bytes) / static_cast<double>(state.ceiling_bytes);
    memory += bar(use, bar_columns, utf8) + " ";
  }
  std::vector<std::string> space = {memory + memory_text(state),
                                    fmt::format("batch {}", state.batch)};

  std::vector<std::string> lines;
  flow({state.title}, columns, lines);
  flow(timing, columns, lines);
  std::string accuracy = accuracy_text(state);
  if (const std::string best = best_text(state); !best.empty()) accuracy += " " + best;
  flow({loss_text(state), accuracy, fmt::format("{:.0f} images/s", state.images_per_second)},
       columns, lines);
  flow(space, columns, lines);
  flow(precision_cells(state), columns, lines);
  return lines;
}

std::string render_epoch(const PanelState& state, size_t columns) {
  struct Cell {
    int rank;  // the first to be left out has the highest
    std::string text;
  };
  std::vector<Cell> cells = {{0, fmt::format("epoch {}/{}", state.epoch, state.epochs)},
                             {7, fmt::format("step {}", state.step)},
                             {2, loss_text(state)},
                             {1, accuracy_text(state)},
                             {8, best_text(state)},
                             {3, fmt::format("{:.0f} images/s", state.images_per_second)},
                             {6, "memory " + memory_text(state)},
                             {4, fmt::format("batch {}", state.batch)}};
  for (std::string& cell : precision_cells(state)) cells.push_back({9, std::move(cell)});
  if (state.seconds_left) cells.push_back({5, duration_text(*state.seconds_left) + " left"});
  std::erase_if(cells, [](const Cell& cell) { return cell.text.empty(); });
  const auto joined = [&cells] {
    std::string text;
    for (const Cell& cell : cells) text += (text.empty() ? "" : "  ") + cell.text;
    return text;
  };
  while (cells.size() > 1 && joined().size() > columns) {
    cells.erase(std::ranges::max_element(cells, {}, &Cell::rank));
  }
  return joined();
}

bool locale_is_utf8() {
  for (const char* const variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* const value = std::getenv(variable);
    if (value == nullptr || *value == '\0') continue;
    std::string lower(value);
    std::ranges::transform(lower, lower.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return lower.find("utf-8") != std::string::npos || lower.find("utf8") != std::string::npos;
  }
  return false;
}

Screen screen_of(int file, bool quiet) {
  const bool terminal = ::isatty(file) == 1;
  return {.write = [file](std::string_view text) { write_all(file, text); },
          .columns = [file] { return columns_of_terminal(file); },
          .terminal = terminal,
          .live = !quiet && terminal && terminal_obeys(),
          .utf8 = locale_is_utf8()};
}

// Back to the first line of the drawing, and everything from there on wiped. A line that was drawn
// in a wider window may now take several rows.
std::string Panel::erased() const {
  if (drawn_.empty()) return {};
  const size_t columns = std::max<size_t>(screen_.columns(), 1);
  size_t rows = 0;
  for (const std::string& line : drawn_) {
    rows += std::max<size_t>((columns_of(line) + columns - 1) / columns, 1);
  }
  return fmt::format("\x1b[{}A\r\x1b[J", rows);
}

void Panel::update(const PanelState& state, int64_t now_ns) {
  if (!due(now_ns)) return;
  const size_t columns = screen_.columns();
  if (columns < kFewestColumns) return;
  std::string text = erased();
  // One column less than there is: some terminals wrap when the last one is filled.
  drawn_ = render_panel(state, columns - 1, screen_.utf8);
  for (const std::string& line : drawn_) text += line + "\n";
  screen_.write(text);
  drawn_ns_ = now_ns;
}

void Panel::note(std::string_view line) {
  std::string text = erased();
  text += line;
  text += '\n';
  // The panel comes back below the note at once, or it would blink at every epoch.
  for (const std::string& old : drawn_) text += old + "\n";
  screen_.write(text);
}

void Panel::epoch_done(const PanelState& state) {
  const size_t columns = screen_.terminal ? screen_.columns() : SIZE_MAX;
  note(render_epoch(state, columns - 1));  // as the panel, one less than there is
}

void Panel::close() {
  if (!drawn_.empty()) screen_.write(erased());
  drawn_.clear();
}

}  // namespace tri::train
