#include "train/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "train/replace_file.h"

namespace tri::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 4> kStatusNames = {"running", "done", "interrupted",
                                                          "diverged"};

// Calls visit(name, field) for every field, in the order of the file; the score, which is not a
// field, goes where it is asked for. One list serves writing and reading.
template <class SummaryOrConst, class Visit, class Score>
void visit_fields(SummaryOrConst& s, const Visit& visit, const Score& score_here) {
  visit("model", s.model);
  visit("data", s.data);
  visit("method", s.method);
  visit("seed", s.seed);
  visit("status", s.status);
  visit("epochs", s.epochs);
  visit("steps", s.steps);
  visit("samples", s.samples);
  visit("params", s.params);
  visit("test_accuracy", s.test_accuracy);
  visit("best_test_accuracy", s.best_test_accuracy);
  visit("train_loss", s.train_loss);
  visit("epoch_seconds", s.epoch_seconds);
  visit("images_per_second", s.images_per_second);
  visit("engine_peak_bytes", s.engine_peak_bytes);
  visit("process_peak_bytes", s.process_peak_bytes);
  visit("ceiling_bytes", s.ceiling_bytes);
  score_here();
  visit("batch", s.batch);
  visit("precision", s.precision);
  visit("control_seconds", s.control_seconds);
  visit("decisions", s.decisions);
  visit("skipped_steps", s.skipped_steps);
  visit("low_ratio", s.low_ratio);
}

template <class T>
Json as_json(const T& value) {
  return value;
}
Json as_json(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }
Json as_json(Status status) { return name(status); }
Json as_json(const Summary::Batch& batch) {
  return {{"first", batch.first}, {"last", batch.last}, {"min", batch.min}, {"max", batch.max}};
}
Json as_json(const Summary::Shares& shares) {
  return {{"fp32", shares.fp32}, {"bf16", shares.bf16}, {"fp16", shares.fp16}, {"fp8", shares.fp8}};
}

// Reading throws what nlohmann throws; parse_summary() is the door.
template <class T>
void read_json(const Json& json, T& value) {
  json.get_to(value);
}
void read_json(const Json& json, std::optional<double>& value) {
  value = json.is_null() ? std::nullopt : std::optional(json.get<double>());
}
// An unknown word leaves the status as it was.
void read_json(const Json& json, Status& status) {
  const auto* const found = std::ranges::find(kStatusNames, json.get<std::string>());
  if (found != kStatusNames.end()) status = static_cast<Status>(found - kStatusNames.begin());
}
void read_json(const Json& json, Summary::Batch& batch) {
  json.at("first").get_to(batch.first);
  json.at("last").get_to(batch.last);
  json.at("min").get_to(batch.min);
  json.at("max").get_to(batch.max);
}
void read_json(const Json& json, Summary::Shares& shares) {
  json.at("fp32").get_to(shares.fp32);
  json.at("bf16").get_to(shares.bf16);
  json.at("fp16").get_to(shares.fp16);
  json.at("fp8").get_to(shares.fp8);
}

}  // namespace

std::string_view name(Status status) { return kStatusNames[static_cast<size_t>(status)]; }

std::optional<double> score(const Summary& summary) {
  const double gigabytes = static_cast<double>(summary.engine_peak_bytes) / 1e9;
  const double cost = summary.epoch_seconds.value_or(0) * gigabytes;
  if (!summary.test_accuracy || !(cost > 0)) return std::nullopt;
  return 100 * *summary.test_accuracy / cost;
}

std::string to_json(const Summary& summary) {
  Json json;
  visit_fields(
      summary, [&](const char* key, const auto& value) { json[key] = as_json(value); },
      [&] { json["score"] = as_json(score(summary)); });
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Summary> parse_summary(std::string_view json, const std::string& source) {
  std::string refusal;
  try {
    const Json document = Json::parse(json);
    Summary summary;
    visit_fields(
        summary, [&](const char* key, auto& value) { read_json(document.at(key), value); }, [] {});
    if (document.at("status") == name(summary.status)) return summary;
    refusal = "unknown status";
  } catch (const Json::exception& exception) {
    refusal = exception.what();
  }
  return unexpected(
      ErrorCode::kFailed,
      fmt::format("'{}' is not the summary of a run ({}); check the path", source, refusal));
}

Result<void> write_summary(const std::string& path, const Summary& summary) {
  return replace_file(path, to_json(summary));
}

Result<Summary> read_summary(const std::string& path) {
  TRI_ASSIGN(const std::string json, read_small_file(path));
  return parse_summary(json, path);
}

}  // namespace tri::train
