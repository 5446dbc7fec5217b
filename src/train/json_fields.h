#pragma once
// Room: train. Fields of state.json one by one, for lists that write and read with the same words.
// Reading throws what nlohmann throws; parse_state() and the replay are the doors.
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

namespace tri::train {

using Json = nlohmann::ordered_json;

template <class T>
Json written(const T& value) {
  return value;
}
inline Json written(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

template <class T>
void read(const Json& json, T& value) {
  json.get_to(value);
}
inline void read(const Json& json, double& value) {  // JSON writes what is not finite as null
  value = json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
}
inline void read(const Json& json, std::optional<double>& value) {
  value = json.is_null() ? std::nullopt : std::optional(json.get<double>());
}

}  // namespace tri::train
