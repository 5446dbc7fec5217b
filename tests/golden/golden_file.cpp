#include "golden/golden_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

namespace tri::golden {
namespace {

using nlohmann::json;

Result<json> read_json(const std::filesystem::path& path) {
  std::ifstream stream(path);
  if (!stream)
    return unexpected(ErrorCode::kFailed, fmt::format("{}: cannot be opened", path.string()));
  json document = json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (document.is_discarded())
    return unexpected(ErrorCode::kFailed, fmt::format("{}: is not JSON", path.string()));
  return document;
}

Fingerprint fingerprint(const json& row) {
  Fingerprint result;
  result.elements = row.at(0);
  result.norm = row.at(1);
  result.projection = row.at(2);
  result.error_norm = row.at(3);
  result.error_max = row.at(4);
  for (size_t i = 5; i < row.size(); ++i) result.samples.push_back(row[i]);
  return result;
}

Curve curve(const json& entry) {
  return {.lr = entry.at("lr"),
          .momentum = entry.value("momentum", 0.0),
          .weight_decay = entry.at("weight_decay"),
          .losses = entry.at("losses"),
          .errors = entry.at("errors")};
}

template <class T, class Convert>
std::map<std::string, T> table(const json& object, Convert convert) {
  std::map<std::string, T> result;
  for (const auto& [key, value] : object.items()) result.emplace(key, convert(value));
  return result;
}

Array array(const json& entry) { return {.dims = entry.at("dims"), .values = entry.at("values")}; }

std::optional<ops::OpKind> parse_kind(std::string_view name) {
  for (size_t i = 0; i < ops::kOpKinds; ++i)
    if (ops::name(static_cast<ops::OpKind>(i)) == name) return static_cast<ops::OpKind>(i);
  return std::nullopt;
}

ops::Activation parse_activation(std::string_view name) {
  for (const auto kind : {ops::Activation::kRelu, ops::Activation::kRelu6, ops::Activation::kSilu,
                          ops::Activation::kSigmoid})
    if (ops::name(kind) == name) return kind;
  return ops::Activation::kNone;
}

void read_pair(const json& entry, const char* key, int64_t& h, int64_t& w) {
  if (!entry.contains(key)) return;
  h = entry[key].at(0);
  w = entry[key].at(1);
}

ops::Attributes attributes(const json& entry) {
  ops::Attributes result;
  read_pair(entry, "kernel", result.kernel_h, result.kernel_w);
  read_pair(entry, "stride", result.stride_h, result.stride_w);
  read_pair(entry, "padding", result.padding_h, result.padding_w);
  result.out_channels = entry.value("out_channels", result.out_channels);
  result.groups = entry.value("groups", result.groups);
  result.bias = entry.value("bias", result.bias);
  result.ceil_mode = entry.value("ceil_mode", result.ceil_mode);
  result.count_include_pad = entry.value("count_include_pad", result.count_include_pad);
  result.eps = entry.value("eps", result.eps);
  result.momentum = entry.value("momentum", result.momentum);
  result.label_smoothing = entry.value("label_smoothing", result.label_smoothing);
  result.activation = parse_activation(entry.value("activation", std::string()));
  return result;
}

Operation operation(const json& entry) {
  Operation result;
  result.name = entry.at("name");
  result.kind = parse_kind(entry.at("op").get<std::string>()).value_or(ops::OpKind::kInput);
  result.attributes = attributes(entry.at("attributes"));
  result.labels = entry.at("attributes").value("labels", std::vector<int64_t>());
  result.inputs = table<Array>(entry.at("inputs"), array);
  result.parameters = table<Array>(entry.at("parameters"), array);
  result.output = array(entry.at("output"));
  result.upstream = array(entry.at("upstream"));
  result.gradients = table<Array>(entry.at("gradients"), array);
  result.extras = table<Array>(entry.at("extras"), array);
  const Array& x = result.inputs.at("x");
  if (result.kind == ops::OpKind::kLinear && x.dims.size() == 4)
    result.attributes.flattened_from = {x.dims[2], x.dims[3], x.dims[1]};
  return result;
}

Step step(const json& entry) {
  Step result;
  result.model = entry.at("model");
  result.batch = entry.at("batch");
  result.options = {.height = entry.at("height"),
                    .width = entry.at("width"),
                    .channels = entry.at("channels"),
                    .classes = entry.at("classes"),
                    .width_multiplier = entry.at("width_multiplier"),
                    .dropout = 0.0f,
                    .stochastic_depth = 0.0f};
  result.label_smoothing = entry.at("label_smoothing");
  result.salt = entry.at("salt");
  result.close_calls = entry.at("close_calls");
  result.loss = entry.at("loss");
  result.loss_error = entry.at("loss_error");
  result.logits = entry.at("logits").get<std::vector<double>>();
  result.logits_error = entry.at("logits_error");
  result.gradients = table<Fingerprint>(entry.at("gradients"), fingerprint);
  result.running = table<Fingerprint>(entry.at("running"), fingerprint);
  result.curves = table<Curve>(entry.value("curves", json::object()), curve);
  return result;
}

// The library reports a missing or mistyped key by throwing; here it becomes a Result.
template <class T, class Convert>
Result<T> converted(const std::filesystem::path& path, Convert convert) {
  const Result<json> document = read_json(path);
  if (!document) return unexpected(document.error());
  try {
    return convert(*document);
  } catch (const json::exception& error) {
    return unexpected(ErrorCode::kFailed, fmt::format("{}: {}", path.string(), error.what()));
  }
}

}  // namespace

std::filesystem::path folder() { return TRI_GOLDEN_FOLDER; }

uint64_t hash(std::string_view name, uint64_t i) {
  uint64_t z = 0xCBF29CE484222325;
  for (const char c : name) z = (z ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  z += (i + 1) * 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

double uniform(std::string_view name, uint64_t i) {
  return static_cast<double>(hash(name, i) >> 40) * 0x1p-23 - 1.0;
}

void fill(std::string_view name, double center, double spread, std::span<float> values) {
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(center + spread * uniform(name, i));
}

void fill_parameter(const nn::Parameter& parameter, std::span<float> values) {
  if (parameter.dims.size() > 1) {
    const int64_t inputs = parameter.elements() / parameter.dims[0];
    const auto fan_in = static_cast<double>(inputs);
    fill(parameter.name, 0.0, std::sqrt(6.0 / fan_in), values);
  } else if (parameter.role == nn::ParamRole::kNormWeight) {
    fill(parameter.name, 1.0, 0.2, values);
  } else {
    fill(parameter.name, 0.0, 0.1, values);
  }
}

std::string compare(std::string_view name, const Fingerprint& expected,
                    std::span<const float> values, double slack, double share) {
  if (values.size() != expected.elements)
    return fmt::format("{}: {} elements instead of {}", name, values.size(), expected.elements);
  constexpr double kEpsilon = std::numeric_limits<float>::epsilon();
  const std::string along = std::string(name) + "/projection",
                    places = std::string(name) + "/sample";
  double squares = 0, projection = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    if (!std::isfinite(value)) return fmt::format("{}: element {} is {}", name, i, value);
    squares += value * value;
    projection += value * uniform(along, i);
  }
  // An error e moves the norm by at most |e|, and the projection on random numbers of variance 1/3
  // by 0.58 |e| on average: one tolerance serves both.
  const double tolerance = slack * expected.error_norm + (share + kEpsilon) * expected.norm;
  const double norm_error = std::abs(std::sqrt(squares) - expected.norm);
  if (norm_error > tolerance)
    return fmt::format("{}: norm {} instead of {}, off by {:.3g}, allowed {:.3g}", name,
                       std::sqrt(squares), expected.norm, norm_error, tolerance);
  const double projection_error = std::abs(projection - expected.projection);
  if (projection_error > tolerance)
    return fmt::format("{}: projection {} instead of {}, off by {:.3g}, allowed {:.3g}", name,
                       projection, expected.projection, projection_error, tolerance);
  for (size_t k = 0; k < expected.samples.size(); ++k) {
    const size_t place = hash(places, k) % values.size();
    const double error = std::abs(static_cast<double>(values[place]) - expected.samples[k]);
    const double allowed = slack * expected.error_max + share * expected.norm +
                           kEpsilon * std::abs(expected.samples[k]);
    if (error > allowed)
      return fmt::format("{}: element {} is {} instead of {}, off by {:.3g}, allowed {:.3g}", name,
                         place, values[place], expected.samples[k], error, allowed);
  }
  return {};
}

std::vector<float> Step::images() const {
  std::vector<float> values(
      static_cast<size_t>(batch * options.channels * options.height * options.width));
  fill(fmt::format("x{}", salt), 0.0, std::sqrt(3.0), values);
  return values;
}

std::vector<int64_t> Step::labels() const {
  std::vector<int64_t> result;
  for (uint64_t i = 0; i < static_cast<uint64_t>(batch); ++i)
    result.push_back(static_cast<int64_t>(hash("y", i) % static_cast<uint64_t>(options.classes)));
  return result;
}

std::vector<std::filesystem::path> step_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder() / "steps"))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

Result<Step> read_step(const std::filesystem::path& path) { return converted<Step>(path, step); }

Result<std::vector<Operation>> read_operations() {
  return converted<std::vector<Operation>>(folder() / "operations.json", [](const json& list) {
    std::vector<Operation> result;
    for (const json& entry : list) result.push_back(operation(entry));
    return result;
  });
}

}  // namespace tri::golden
