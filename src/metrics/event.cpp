#include "metrics/event.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace tri::metrics {
namespace {

template <class Float>
std::string number_text(Float value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

std::string string_text(std::string_view text) {
  using nlohmann::json;
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

Value::Value(float value) : text_(number_text(value)) {}
Value::Value(double value) : text_(number_text(value)) {}
Value::Value(std::string_view value) : text_(string_text(value)) {}
Value::Value(const Fields& object) : text_(object.text()) {}

Fields::Fields(std::initializer_list<std::pair<std::string_view, Value>> members) {
  for (const auto& [name, value] : members) add(name, value);
}

Fields& Fields::add(std::string_view name, Value value) {
  TRI_CHECK(
      std::ranges::none_of(members_, [&](const auto& member) { return member.first == name; }),
      "two fields are named {}", name);
  members_.emplace_back(name, std::move(value));
  return *this;
}

Fields& Fields::add(const Fields& others) {
  for (const auto& [name, value] : others.members_) add(name, value);
  return *this;
}

std::string Fields::text() const {
  std::string text = "{";
  for (const auto& [name, value] : members_) {
    if (text.size() > 1) text += ',';
    text += string_text(name);
    text += ':';
    text += value.text();
  }
  return text + '}';
}

std::string_view name(EventKind kind) {
  switch (kind) {
    case EventKind::kStart:
      return "start";
    case EventKind::kStep:
      return "step";
    case EventKind::kControl:
      return "control";
    case EventKind::kCurvature:
      return "curvature";
    case EventKind::kEpoch:
      return "epoch";
    case EventKind::kCheckpoint:
      return "checkpoint";
    case EventKind::kWarning:
      return "warning";
    case EventKind::kEnd:
      return "end";
  }
  TRI_CHECK(false, "kind = {}", static_cast<int>(kind));
  return "";
}

std::string to_json(const Event& event) {
  return Fields{{"event", name(event.kind)},
                {"step", event.step},
                {"samples", event.samples},
                {"seconds", event.seconds}}
      .add(event.fields)
      .text();
}

}  // namespace tri::metrics
