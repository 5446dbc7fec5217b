#include "train/control_codec.h"

#include <array>
#include <limits>

#include "train/json_fields.h"

namespace tri::train {
namespace {

using train::read;  // NOLINT(misc-unused-using-decls): for templates
using train::written;

template <class State, class Visit>
void visit_adaptive(State& layer, const Visit& visit) {
  visit("spread", layer.spread);
  visit("level", layer.level);
  visit("floor", layer.floor);
  visit("wish", layer.wish);
  visit("curved", layer.curved);
  visit("calm", layer.calm);
  visit("held", layer.held);
  visit("narrow", layer.narrow);
  visit("lossy", layer.lossy);
  visit("y_scale", layer.scales.y);
  visit("gy_scale", layer.scales.gy);
  visit("why_wish", layer.why_wish);
  visit("why_must", layer.why_must);
}

template <class State, class Visit>
void visit_governor(State& state, const Visit& visit) {
  visit("batch", state.batch);
  visit("micros", state.micros);
  visit("ghost", state.ghost);
  visit("recompute", state.recompute);
  visit("blocks", state.blocks);
  visit("ceiling_bytes", state.ceiling_bytes);
  visit("rest", state.rest);
  visit("lost_step", state.lost_step);
  visit("failures", state.failures);
  visit("helpless", state.helpless);
  visit("changes", state.changes);
  visit("loss_scale", state.loss.scale);
  visit("loss_scale_since_step", state.loss.since_step);
  visit("loss_scale_since_samples", state.loss.since_samples);
  visit("skipped", state.loss.skipped);
  visit("lambda", state.lambda);
  visit("noise_scale", state.noise_scale);
}

Json written(control::Level level) { return name(level); }

void read(const Json& json, control::Level& level) {
  const auto word = json.get<std::string>();
  level = word == "fp32"   ? control::Level::kFp32
          : word == "bf16" ? control::Level::kBf16
                           : control::Level::kFp16;
}

Json signals_json(const control::Signals& signals) {
  Json json;
  visit_signals(signals, [&](const char* key, const auto& value) { json[key] = written(value); });
  json["layers"] = Json::array();
  for (const control::LayerSignals& layer : signals.layers) {
    Json& one = json["layers"].emplace_back();
    visit_layer_signals(layer,
                        [&](const char* key, const auto& value) { one[key] = written(value); });
  }
  return json;
}

metrics::Value event_value(const std::optional<double>& value) {
  return value.value_or(std::numeric_limits<double>::quiet_NaN());  // null
}
template <class T>
metrics::Value event_value(const T& value) {
  return value;
}

metrics::Fields signal_fields(const control::Signals& signals) {
  metrics::Fields fields;
  visit_signals(signals,
                [&](const char* key, const auto& value) { fields.add(key, event_value(value)); });
  std::vector<metrics::Fields> layers;
  for (const control::LayerSignals& layer : signals.layers) {
    metrics::Fields& one = layers.emplace_back();
    visit_layer_signals(layer, [&](const char* key, const auto& value) { one.add(key, value); });
  }
  fields.add("layers", layers);
  return fields;
}

std::array<numeric::Format control::PrecisionRow::*, 4> columns() {
  using Row = control::PrecisionRow;
  return {&Row::p, &Row::y, &Row::gy, &Row::gp};
}

}  // namespace

Json to_json(const control::GovernorState& state) {
  Json json;
  visit_governor(state, [&](const char* key, const auto& value) { json[key] = written(value); });
  json["layers"] = Json::array();
  for (const control::AdaptiveLayer& layer : state.layers) {
    Json& one = json["layers"].emplace_back();
    visit_adaptive(layer, [&](const char* key, const auto& value) { one[key] = written(value); });
  }
  json["assignment"] = Json::array();  // low tensors of each operation
  for (const control::LowTensors& low : state.assignment) {
    json["assignment"].push_back(Json::array({low.p, low.y, low.gy, low.denied}));
  }
  json["noise"] = nullptr;
  if (state.noise) json["noise"] = Json::array({state.noise->variance, state.noise->squared_mean});
  json["window"] = signals_json(state.window);
  return json;
}

void from_json(const Json& json, control::GovernorState& state) {
  visit_governor(state, [&](const char* key, auto& value) { read(json.at(key), value); });
  state.layers.clear();
  for (const Json& one : json.at("layers")) {
    visit_adaptive(state.layers.emplace_back(),
                   [&](const char* key, auto& value) { read(one.at(key), value); });
  }
  state.assignment.clear();
  for (const Json& low : json.at("assignment")) {
    state.assignment.push_back({low.at(0).get<bool>(), low.at(1).get<bool>(), low.at(2).get<bool>(),
                                low.at(3).get<bool>()});
  }
  state.noise.reset();
  if (const Json& noise = json.at("noise"); !noise.is_null()) {
    state.noise = {noise.at(0).get<double>(), noise.at(1).get<double>()};
  }
  state.window = read_signals(json.at("window"));
}

control::Signals read_signals(const Json& json) {
  control::Signals signals;
  visit_signals(signals, [&](const char* key, auto& value) { read(json.at(key), value); });
  for (const Json& one : json.at("layers")) {
    visit_layer_signals(signals.layers.emplace_back(),
                        [&](const char* key, auto& value) { read(one.at(key), value); });
  }
  return signals;
}

Json to_json(const control::PrecisionTable& table) {
  Json json = Json::array();
  for (const control::PrecisionRow& row : table) {
    Json& one = json.emplace_back(Json::array());
    for (const auto column : columns()) one.push_back(numeric::spec(row.*column).name);
  }
  return json;
}

control::PrecisionTable read_table(const Json& json) {
  control::PrecisionTable table;
  for (const Json& one : json) {
    control::PrecisionRow& row = table.emplace_back();
    size_t at = 0;
    for (const auto column : columns()) {
      const auto format = numeric::parse_format(one.at(at++).get<std::string>());
      row.*column = format.value_or(numeric::Format::kF32);
    }
  }
  return table;
}

metrics::Fields table_fields(const control::PrecisionTable& table,
                             std::span<const control::LayerFacts> layers,
                             const std::string& state) {
  metrics::Fields fields;
  for (size_t l = 0; l < table.size(); ++l) {
    const auto word = [](numeric::Format format) { return numeric::spec(format).name; };
    const control::PrecisionRow& row = table[l];
    fields.add(layers[l].name, metrics::Fields{{"p", word(row.p)},
                                               {"y", word(row.y)},
                                               {"gy", word(row.gy)},
                                               {"gp", word(row.gp)},
                                               {"m", state}});
  }
  return fields;
}

metrics::Fields event_fields(const control::Decision& decision, const control::Signals& signals,
                             bool urgent) {
  std::vector<metrics::Fields> changes;
  for (const control::Change& change : decision.changes) {
    changes.push_back({{"what", change.what},
                       {"from", change.from},
                       {"to", change.to},
                       {"reason", change.reason}});
  }
  return {{"urgent", urgent},
          {"changes", changes},
          {"batch", decision.batch},
          {"micros", decision.micros},
          {"ghost", decision.ghost},
          {"recomputed_blocks", decision.blocks},
          {"loss_scale", decision.loss_scale},
          {"signals", signal_fields(signals)}};
}

}  // namespace tri::train
