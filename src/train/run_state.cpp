#include "train/run_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "checkpoint/crc32c.h"
#include "train/control_codec.h"
#include "train/json_fields.h"

namespace tri::train {
namespace {

using train::read;     // NOLINT(misc-unused-using-decls): for templates
using train::written;  // NOLINT(misc-unused-using-decls): for templates

constexpr int kVersion = 3;

// Calls visit(key, field) for every field: written and read by one list.
template <class State, class Visit>
void visit_state(State& state, const Visit& visit) {
  visit("step", state.step);
  visit("samples", state.samples);
  visit("seconds", state.seconds);
  visit("seed", state.seed);
  visit("simd_target", state.simd_target);
  visit("config_crc", state.config_crc);
  visit("loss_sum", state.loss_sum);
  visit("correct", state.correct);
  visit("counted", state.counted);
  visit("train_seconds", state.train_seconds);
  visit("epochs", state.epochs);
  visit("train_loss", state.train_loss);
  visit("test_accuracy", state.test_accuracy);
  visit("best_test_accuracy", state.best_test_accuracy);
  visit("best_judged", state.best_judged);
  visit("epochs_since_best", state.epochs_since_best);
  visit("epoch_seconds", state.epoch_seconds);
  visit("images_per_second", state.images_per_second);
  visit("window_loss", state.window_loss);
  visit("window_steps", state.window_steps);
  visit("ceiling_bytes", state.ceiling_bytes);
  visit("asked_bytes", state.asked_bytes);
  visit("request_serial", state.request_serial);
  visit("engine_peak_bytes", state.engine_peak_bytes);
  visit("process_peak_bytes", state.process_peak_bytes);
  visit("base_bytes", state.base_bytes);
  visit("norm_batches", state.norm_batches);
  visit("gradient_norm", state.gradient_norm);
  visit("first_batch", state.first_batch);
  visit("least_batch", state.least_batch);
  visit("most_batch", state.most_batch);
  visit("control_seconds", state.control_seconds);
}

template <class Card, class Visit>
void visit_card(Card& card, const Visit& visit) {
  visit("model", card.model);
  visit("width", card.width);
  visit("height_pixels", card.image.h);
  visit("width_pixels", card.image.w);
  visit("channels", card.image.c);
  visit("class_names", card.class_names);
  visit("data", card.data);
  visit("val_split", card.val_split);
  visit("weights", card.weights);
  visit("precision", card.table);
  visit("mean", card.normalisation.mean);
  visit("deviation", card.normalisation.deviation);
}

Json written(const control::PrecisionTable& table) { return to_json(table); }
// [["winograd", "direct"], ...]: forward and backward of every layer.
Json written(const std::vector<ops::Kernels>& kernels) {
  Json json = Json::array();
  for (const ops::Kernels& one : kernels)
    json.push_back({ops::name(one.forward), ops::name(one.backward)});
  return json;
}

void read(const Json& json, control::PrecisionTable& table) { table = read_table(json); }
void read(const Json& json, std::vector<ops::Kernels>& kernels) {
  const auto kernel = [](const Json& word) {
    return ops::parse_kernel(word.get<std::string>()).value_or(ops::Kernel::kByShape);
  };
  for (const Json& one : json) kernels.push_back({kernel(one.at(0)), kernel(one.at(1))});
}

// What later code relies on without looking.
bool sound(const ModelCard& card) {
  const size_t channels = card.normalisation.mean.size();
  return channels >= 1 && card.normalisation.deviation.size() == channels &&
         std::ranges::all_of(card.normalisation.deviation, [](float d) { return d > 0; }) &&
         card.image.h >= 1 && card.image.w >= 1 && card.image.c >= 1 && !card.class_names.empty() &&
         (channels == 1 || static_cast<int64_t>(channels) == card.image.c);
}

}  // namespace

std::string to_json(const RunState& state) {
  Json json = {{"version", kVersion}};
  visit_state(state, [&](const char* key, const auto& value) { json[key] = written(value); });
  json["control"] = to_json(state.control);
  Json& card = json["card"];
  visit_card(state.card, [&](const char* key, const auto& value) { card[key] = written(value); });
  if (!state.card.kernels.empty()) card["kernels"] = written(state.card.kernels);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<RunState> parse_state(std::string_view json, const std::string& source) {
  std::string refusal;
  try {
    const Json document = Json::parse(json);
    RunState state;
    if (const int version = document.at("version").get<int>(); version != kVersion) {
      refusal = fmt::format("it is of version {} and {} is read", version, kVersion);
    } else {
      visit_state(state, [&](const char* key, auto& value) { read(document.at(key), value); });
      from_json(document.at("control"), state.control);
      const Json& card = document.at("card");
      visit_card(state.card, [&](const char* key, auto& value) { read(card.at(key), value); });
      if (card.contains("kernels")) read(card.at("kernels"), state.card.kernels);
      if (sound(state.card)) return state;
      refusal = "its card is incomplete";
    }
  } catch (const Json::exception& exception) {
    refusal = exception.what();
  }
  return unexpected(
      ErrorCode::kFailed,
      fmt::format("'{}' is not the state of a run ({}); use another checkpoint", source, refusal));
}

uint32_t config_crc(const Config& config) {
  Config fixed = config;
  fixed.threads.reset();
  fixed.max_steps.reset();
  fixed.save_every = {};
  fixed.out.clear();
  fixed.memory = "auto";
  if (!fixed.data.starts_with("synthetic")) fixed.data = fixed.data.substr(0, fixed.data.find(':'));
  const std::string text = to_toml(fixed);
  return checkpoint::crc32c(0, std::as_bytes(std::span(text)));
}

}  // namespace tri::train
