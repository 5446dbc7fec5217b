#include "report/run_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <utility>

namespace tri::report {
namespace {
namespace fs = std::filesystem;

constexpr size_t kMostFileBytes = size_t{1} << 20;  // of summary.json and config.toml
constexpr size_t kMostLineBytes = size_t{1} << 18;  // of an event; ours are far below
constexpr size_t kFirstDecisions = 100;
constexpr size_t kMostDecisions = 400;

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostFileBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  text.shrink_to_fit();
  return text;
}

// Calls visit(line) for every complete line. A line too long to be an event is handed on cut, which
// makes it unreadable; what follows the last newline is still being written.
template <class Visit>
void for_each_line(const std::string& path, const Visit& visit) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rbe"),
                                                             &std::fclose);
  if (!file) return;
  std::string line;
  std::string piece(size_t{1} << 16, '\0');
  while (const size_t count = std::fread(piece.data(), 1, piece.size(), file.get())) {
    std::string_view rest(piece.data(), count);
    for (size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
      line += rest.substr(0, end);
      rest.remove_prefix(end + 1);
      visit(line);
      line.clear();
    }
    line += rest.substr(0, kMostLineBytes - std::min(line.size(), kMostLineBytes));
  }
}

// Any scalar as a reader would write it.
std::string text(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return {};
  if (found->is_string()) return found->get<std::string>();
  if (found->is_number_float()) return fmt::format("{:.4g}", found->get<double>());
  return found->dump(-1, ' ', false, Json::error_handler_t::replace);
}

void add(Thinned& curve, double x, const std::optional<double>& y) {
  if (y) curve.add(x, *y);
}

std::vector<ConfigLine> read_config(const std::string& path) {
  std::vector<ConfigLine> lines;
  std::string group;
  const std::string all = read_text(path);
  std::string_view rest = all;
  const auto trimmed = [](std::string_view part) {
    const size_t first = part.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) return std::string();
    return std::string(part.substr(first, part.find_last_not_of(" \t\r") - first + 1));
  };
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.starts_with("#")) {
      group = trimmed(line.substr(1));
      continue;
    }
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    // A value in quotes may hold a '#'; the origin stands behind the last one.
    const size_t quote = line.rfind('"');
    const size_t hash = line.find('#', quote == std::string_view::npos ? equals : quote);
    std::string value = trimmed(line.substr(equals + 1, hash - equals - 1));
    if (value.size() >= 2 && value.front() == '"') value = value.substr(1, value.size() - 2);
    lines.push_back({group, trimmed(line.substr(0, equals)), value,
                     hash == std::string_view::npos ? "" : trimmed(line.substr(hash + 1))});
  }
  return lines;
}

class Reader {
 public:
  explicit Reader(RunLog& log) : log_(log) {}

  void line(const std::string& text_of_line) {
    if (text_of_line.empty()) return;
    const Json event = Json::parse(text_of_line, nullptr, /*allow_exceptions=*/false);
    if (!event.is_object()) {
      ++log_.unreadable_lines;
      return;
    }
    read_place(event);
    const std::string kind = text(event, "event");
    read_levels(event);
    if (kind == "start") start(event);
    if (kind == "step") step(event);
    if (kind == "control") control(event);
    if (kind == "curvature") curvature(event);
    if (kind == "epoch") epoch(event);
    if (kind == "warning") keep({log_.last_step, epochs_, "", "", "", text(event, "message")});
    if (kind == "end") log_.end_reason = text(event, "reason");
    stepping_ = kind == "step" || (stepping_ && kind != "start");
    if (kind == "step") return;
    for (const char* other : {"curvature_seconds", "save_seconds", "evaluation_seconds"}) {
      beside_seconds_ += number(event, other).value_or(0);
    }
  }

 private:
  void read_place(const Json& event) {
    const auto whole = [&](const char* key) {
      return static_cast<uint64_t>(std::clamp(number(event, key).value_or(0), 0.0, 0x1p62));
    };
    step_ = whole("step");
    log_.last_step = std::max(log_.last_step, step_);
    samples_ = number(event, "samples").value_or(0);
    log_.last_samples = std::max(log_.last_samples, whole("samples"));
    seconds_ = number(event, "seconds").value_or(0);
    log_.last_seconds = std::max(log_.last_seconds, seconds_);
    if (epoch_samples_ > 0) epochs_ = samples_ / epoch_samples_;
  }

  // Fields that several kinds of events carry.
  void read_levels(const Json& event) {
    const auto peak = number(event, "engine_peak_bytes");
    if (peak) peak_ = peak;
    const auto planned = number(event, "process_plan_bytes");
    add(log_.planned_bytes, seconds_, planned ? planned : peak);
    add(log_.measured_bytes, seconds_, number(event, "rss_bytes"));
    add(log_.ceiling_bytes, seconds_, number(event, "ceiling_bytes"));
    add(log_.batch, static_cast<double>(step_), number(event, "batch"));
    add(log_.noise_scale, static_cast<double>(step_), number(event, "noise_scale"));
    if (epoch_samples_ > 0) add(log_.learning_rate, epochs_, number(event, "lr"));
  }

  void start(const Json& event) {
    epoch_samples_ = number(event, "epoch_samples").value_or(0);
    if (epoch_samples_ > 0) epochs_ = samples_ / epoch_samples_;
    const auto table = event.find("precision");
    if (table != event.end()) read_table(*table);
  }

  // {LAYER: "bf16"} or {LAYER: {"y": "bf16", ...}}.
  void read_table(const Json& table) {
    if (!table.is_object()) return;
    for (const auto& [layer, format] : table.items()) {
      const std::string name = format.is_object()   ? text(format, "y")
                               : format.is_string() ? format.get<std::string>()
                                                    : "";
      if (!name.empty()) put_format(layer, name);
    }
  }

  // "LAYER", "LAYER Y" and the like; the page shows what layers store, Y.
  void change_format(const std::string& target, std::string_view name) {
    const size_t space = target.rfind(' ');
    const bool level = space == std::string::npos;
    if (!level && target.substr(space) != " Y") return;
    const std::string layer = target.substr(0, space);
    // An output that memory made narrow stays so until it is told otherwise, or fp32.
    if (level && name != "fp32" && narrow_.contains(layer)) return;
    const bool narrows = !level && name.starts_with("fp8");
    if (narrows) narrow_.insert(layer);
    if (!narrows) narrow_.erase(layer);
    put_format(layer, name);
  }

  void put_format(const std::string& layer, std::string_view name) {
    log_.precision.put(layer, step_, static_cast<float>(format_index(name)));
  }

  void step(const Json& event) {
    add(log_.step_loss, epochs_, number(event, "loss"));
    // Of training alone.
    const double spent = seconds_ - before_seconds_ - std::exchange(beside_seconds_, 0);
    if (stepping_ && spent > 0 && samples_ > before_samples_) {
      log_.throughput.add(epochs_, (samples_ - before_samples_) / spent);
    }
    before_seconds_ = seconds_;
    before_samples_ = samples_;
  }

  void control(const Json& event) {
    const auto changes = event.find("changes");
    if (changes == event.end() || !changes->is_array()) return;
    for (const Json& change : *changes) {
      if (!change.is_object()) continue;
      Decision made{step_,
                    epochs_,
                    text(change, "what"),
                    text(change, "from"),
                    text(change, "to"),
                    text(change, "reason")};
      const auto named = [&](std::string_view kind) -> std::optional<std::string> {
        if (!made.what.starts_with(kind)) return std::nullopt;
        return made.what.substr(kind.size());
      };
      if (const auto layer = named("precision ")) change_format(*layer, made.to);
      if (const auto layer = named("step size ")) {
        log_.step_size.put(*layer, step_, std::strtof(made.to.c_str(), nullptr));
      }
      if (made.what == "batch") {
        const char* const first = made.to.c_str();
        log_.batch.add(static_cast<double>(step_), std::strtod(first, nullptr));
      }
      ++log_.decision_count;
      keep(std::move(made));
    }
  }

  void curvature(const Json& event) {
    const auto layers = event.find("layers");
    if (layers == event.end() || !layers->is_array()) return;
    for (const Json& layer : *layers) {
      if (!layer.is_object()) continue;
      const std::string name = text(layer, "name");
      const auto lambda = layer.find("lambda");
      if (lambda != layer.end()) {
        // Of the Hessian those of largest magnitude are listed; what counts is the largest.
        std::optional<float> top;
        const Json values = lambda->is_array() ? *lambda : Json::array({*lambda});
        for (const Json& value : values) {
          if (value.is_number()) top = std::max(top.value_or(value), value.get<float>());
        }
        if (top) log_.curvature.put(name, step_, *top);
      }
      if (const auto size = number(layer, "step_size")) {
        log_.step_size.put(name, step_, static_cast<float>(*size));
      }
    }
  }

  void epoch(const Json& event) {
    const double x = number(event, "epoch").value_or(epochs_);
    if (epoch_samples_ <= 0 && x > 0) epoch_samples_ = samples_ / x;
    add(log_.train_loss, x, number(event, "train_loss"));
    add(log_.val_loss, x, number(event, "val_loss"));
    add(log_.test_loss, x, number(event, "test_loss"));
    add(log_.train_accuracy, x, number(event, "train_accuracy"));
    add(log_.val_accuracy, x, number(event, "val_accuracy"));
    const auto accuracy = number(event, "test_accuracy");
    add(log_.test_accuracy, x, accuracy);
    const auto spent = number(event, "epoch_seconds");
    add(log_.epoch_seconds, x, spent);
    add(log_.epoch_peak, x, peak_);
    if (accuracy && spent && peak_ && *spent * *peak_ > 0) {
      log_.epoch_score.add(x, 100 * *accuracy / (*spent * *peak_ / 1e9));
    }
  }

  void keep(Decision decision) {
    std::deque<Decision>& kept = log_.decisions;
    if (kept.size() == kMostDecisions) {
      kept.erase(kept.begin() + kFirstDecisions);
      ++log_.decisions_left_out;
    }
    kept.push_back(std::move(decision));
  }

  RunLog& log_;
  uint64_t step_ = 0;
  double samples_ = 0, seconds_ = 0, epochs_ = 0, epoch_samples_ = 0;
  double before_samples_ = 0, before_seconds_ = 0;
  double beside_seconds_ = 0;  // since then, for what is not training
  bool stepping_ = false;
  std::set<std::string> narrow_;  // layers whose outputs have 8 bits
  std::optional<double> peak_;
};

std::string own_name(const std::string& directory) {
  std::error_code ignored;
  fs::path path = fs::absolute(directory, ignored).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return path.filename().string();
}

}  // namespace

std::optional<double> number(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

size_t format_index(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (has("bf16")) return 1;
  if (has("169") || has("1-6-9") || has("e6")) return 3;
  if (has("f8") || has("fp8")) return has("e5") || has("152") || has("1-5-2") ? 5 : 4;
  if (has("f16") || has("fp16")) return 2;
  if (has("f32") || has("fp32")) return 0;
  return std::size(kFormatNames) - 1;
}

Result<RunLog> read_run(const std::string& directory) {
  const std::string metrics = directory + "/metrics.jsonl", summary = directory + "/summary.json";
  std::error_code ignored;
  if (!fs::is_regular_file(metrics, ignored) && !fs::is_regular_file(summary, ignored)) {
    return unexpected(ErrorCode::kInvalid,
                      fmt::format("'{}' is not the directory of a run: it has no metrics.jsonl; "
                                  "give the one that train named",
                                  directory));
  }
  RunLog log;
  log.directory = directory;
  log.name = own_name(directory);
  Json read = Json::parse(read_text(summary), nullptr, /*allow_exceptions=*/false);
  if (read.is_object()) log.summary = std::move(read);
  log.config = read_config(directory + "/config.toml");
  Reader reader(log);
  for_each_line(metrics, [&](const std::string& line) { reader.line(line); });
  return log;
}

}  // namespace tri::report
