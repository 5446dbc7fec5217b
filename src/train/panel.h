#pragma once
// Room: train. What a run shows while it works. In: a few numbers. Out: lines of text, and through
// a sink the bytes that keep them in place on a terminal. Opens and prints nothing itself.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tri::train {

struct PanelState {
  std::string title;  // "resnet18 on fashion-mnist, triaccel"
  int64_t epoch = 0;  // from 1; the one in progress, or the one just finished
  int64_t epochs = 0;
  double epoch_share = 0;  // of this epoch, done
  uint64_t step = 0;
  std::optional<double> loss;
  std::optional<double> accuracy, best_accuracy;  // of the last evaluation, in [0, 1]
  double images_per_second = 0;
  uint64_t memory_bytes = 0;
  uint64_t ceiling_bytes = 0;  // 0: none
  int64_t batch = 0;
  struct Share {
    std::string_view precision;  // "bf16"
    double share = 0;            // of parameters
  };
  std::vector<Share> precisions;
  std::optional<double> seconds_left;
};

// The panel's lines; none is wider than `columns`.
std::vector<std::string> render_panel(const PanelState& state, size_t columns, bool utf8);

// One line for an epoch that is over; always ASCII. Where it would be wider than `columns`, what
// matters less is left out.
std::string render_epoch(const PanelState& state, size_t columns);

// "48s", "4m 10s", "2h 05m", "3d 04h"
std::string duration_text(double seconds);

// What the panel writes to.
struct Screen {
  std::function<void(std::string_view)> write;
  std::function<size_t()> columns;  // asked at every draw: windows change
  bool terminal = false;            // of so many columns; a file takes lines of any length
  bool live = false;                // a terminal that can move its cursor
  bool utf8 = false;
};

// Of standard output or error, say. Quiet screens are not live.
Screen screen_of(int file, bool quiet);

// Reads the environment's locale (LC_ALL, LC_CTYPE, LANG).
bool locale_is_utf8();

class Panel {
 public:
  static constexpr int64_t kMinIntervalNs = 200'000'000;  // faster is flicker

  explicit Panel(Screen screen) : screen_(std::move(screen)) {}

  // Whether update() would draw now; a state may be costly to gather.
  bool due(int64_t now_ns) const {
    return screen_.live && !(drawn_ns_ && now_ns - *drawn_ns_ < kMinIntervalNs);
  }

  // Redraws in place, unless the last drawing is younger than kMinIntervalNs. Nothing where the
  // screen is not live. `now_ns` is any monotonic clock.
  void update(const PanelState& state, int64_t now_ns);

  // A line that stays, above the panel: an epoch, a warning.
  void note(std::string_view line);
  void epoch_done(const PanelState& state);

  // Removes the panel; the notes stay.
  void close();

 private:
  std::string erased() const;

  Screen screen_;
  std::vector<std::string> drawn_;
  std::optional<int64_t> drawn_ns_;
};

}  // namespace tri::train
