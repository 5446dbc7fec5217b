#pragma once
// Room: metrics. In: what happened in a run, with its numbers. Out: one line of JSON. Does not know
// what the numbers mean or where the line goes (jsonl_writer.h).
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tri::metrics {

class Fields;

// One JSON value, kept as its text. Numbers are written in full, so they read back to the same
// bits. NaN and infinities, which JSON lacks, become null; bytes that are no UTF-8 become U+FFFD.
class Value {
 public:
  Value(std::same_as<bool> auto value) : text_(value ? "true" : "false") {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) Value(T value) : text_(std::to_string(value)) {}
  Value(float value);
  Value(double value);
  Value(std::string_view value);
  Value(const std::string& value) : Value(std::string_view(value)) {}
  Value(const char* value) : Value(std::string_view(value)) {}
  Value(const Fields& object);
  template <std::ranges::input_range Items>
  requires(!std::convertible_to<const Items&, std::string_view>) Value(const Items& items)
      : text_("[") {
    for (const auto& item : items) {
      if (text_.size() > 1) text_ += ',';
      text_ += Value(item).text_;
    }
    text_ += ']';
  }

  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// The members of a JSON object, in the order given:
// Fields{{"loss", 0.7}, {"batch", 64}, {"layers", std::vector<Fields>{...}}}.
class Fields {
 public:
  Fields() = default;
  Fields(std::initializer_list<std::pair<std::string_view, Value>> members);

  // REQUIRES: no member has this name yet.
  Fields& add(std::string_view name, Value value);

  Fields& add(const Fields& others);

  std::string text() const;

 private:
  std::vector<std::pair<std::string, Value>> members_;
};

enum class EventKind {
  kStart,
  kStep,
  kControl,  // lists `changes`, each with what, from, to, reason
  kCurvature,
  kEpoch,
  kCheckpoint,
  kWarning,
  kEnd,
};
std::string_view name(EventKind kind);

struct Event {
  EventKind kind = EventKind::kStep;
  uint64_t step = 0;
  uint64_t samples = 0;  // seen by the training since its start
  double seconds = 0;    // since the start of the run
  Fields fields = {};    // REQUIRES: not named event, step, samples or seconds
};

// One line without its end.
std::string to_json(const Event& event);

}  // namespace tri::metrics
