#pragma once
// Room: train. What room control remembers and sees, as JSON: for state.json, for `control` events,
// and back to the same bits.
#include <nlohmann/json.hpp>
#include <span>

#include "control/governor.h"
#include "metrics/event.h"

namespace tri::train {

nlohmann::ordered_json to_json(const control::GovernorState& state);
// These throw what nlohmann throws; parse_state() and the replay are the doors.
void from_json(const nlohmann::ordered_json& json, control::GovernorState& state);
control::Signals read_signals(const nlohmann::ordered_json& json);

// [["bf16", "bf16", "bf16", "fp32"], ...]: P, Y, GY and GP of every layer.
nlohmann::ordered_json to_json(const control::PrecisionTable& table);
control::PrecisionTable read_table(const nlohmann::ordered_json& json);

// {LAYER: {"p": "bf16", "y": ..., "gy": ..., "gp": ..., "m": `state`}}, for people.
metrics::Fields table_fields(const control::PrecisionTable& table,
                             std::span<const control::LayerFacts> layers, const std::string& state);

// A `control` event: the changes, what they follow from, and where they lead. `urgent`: decided
// behind a step inside a window.
metrics::Fields event_fields(const control::Decision& decision, const control::Signals& signals,
                             bool urgent);

}  // namespace tri::train
