#include "train/model_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <span>

#include "base/check.h"
#include "checkpoint/safetensors.h"
#include "simd/convert.h"

namespace tri::train {
namespace {

using checkpoint::DType;
using checkpoint::SafetensorsReader;
using checkpoint::SafetensorsWriter;
using checkpoint::TensorInfo;
using checkpoint::TensorSpec;

// Where the values of a tensor of the file are kept.
struct Place {
  enum class Kind : uint8_t { kParameter, kMean, kVariance, kBatches };
  Kind kind = Kind::kParameter;
  size_t parameter = 0;
  int node = -1;
};

std::vector<uint64_t> dims_of(const nn::Parameter& parameter) {
  return {parameter.dims.begin(), parameter.dims.end()};
}

// Every tensor that PyTorch would save for this model, with its place.
std::map<std::string, Place> places_of(const nn::Model& model) {
  std::map<std::string, Place> places;
  for (size_t p = 0; p < model.parameters.size(); ++p) {
    places[model.parameters[p].name] = {Place::Kind::kParameter, p, -1};
  }
  for (size_t n = 0; n < model.nodes.size(); ++n) {
    const nn::Node& node = model.nodes[n];
    if (node.kind != ops::OpKind::kBatchNorm) continue;
    const int index = static_cast<int>(n);
    places[node.name + ".running_mean"] = {Place::Kind::kMean, 0, index};
    places[node.name + ".running_var"] = {Place::Kind::kVariance, 0, index};
    places[node.name + ".num_batches_tracked"] = {Place::Kind::kBatches, 0, index};
  }
  return places;
}

std::vector<TensorSpec> specs_of(const nn::Model& model, DType dtype) {
  std::vector<TensorSpec> specs;
  for (const auto& [name, place] : places_of(model)) {
    switch (place.kind) {
      case Place::Kind::kParameter:
        specs.push_back({name, dtype, dims_of(model.parameters[place.parameter])});
        break;
      case Place::Kind::kMean:
      case Place::Kind::kVariance:
        specs.push_back(
            {name,
             DType::kF32,
             {static_cast<uint64_t>(model.nodes[static_cast<size_t>(place.node)].shape.c)}});
        break;
      case Place::Kind::kBatches:
        specs.push_back({name, DType::kI64, {}});
        break;
    }
  }
  return specs;
}

std::span<float> statistics(const exec::Parameters& parameters, const Place& place) {
  return place.kind == Place::Kind::kMean ? parameters.running_mean(place.node)
                                          : parameters.running_variance(place.node);
}

std::optional<numeric::Format> format_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return numeric::Format::kF32;
    case DType::kBf16:
      return numeric::Format::kBf16;
    case DType::kF16:
      return numeric::Format::kF16;
    default:
      return std::nullopt;
  }
}

// Appends numbers in pieces of a limited size.
Result<void> append(SafetensorsWriter& writer, size_t tensor, std::span<const float> values) {
  const numeric::Format format = *format_of(writer.tensors()[tensor].dtype);
  constexpr size_t kNumbers = checkpoint::kPieceBytes / sizeof(float);
  std::vector<std::byte> piece(std::min(values.size(), kNumbers) * numeric::storage_bytes(format));
  for (size_t at = 0; at < values.size(); at += kNumbers) {
    const auto part = values.subspan(at, std::min(kNumbers, values.size() - at));
    simd::encode(format, part.data(), piece.data(), part.size());
    TRI_TRY(writer.append(tensor,
                          std::span(piece).first(part.size() * numeric::storage_bytes(format))));
  }
  return {};
}

// Elements [first, first + values.size()).
Result<void> read_values(const SafetensorsReader& reader, const TensorInfo& tensor, size_t first,
                         std::span<float> values) {
  const numeric::Format format = *format_of(tensor.dtype);
  const size_t each = numeric::storage_bytes(format);
  constexpr size_t kNumbers = checkpoint::kPieceBytes / sizeof(float);
  std::vector<std::byte> piece(std::min(values.size(), kNumbers) * each);
  for (size_t at = 0; at < values.size(); at += kNumbers) {
    const size_t count = std::min(kNumbers, values.size() - at);
    TRI_TRY(reader.read(tensor, (first + at) * each, std::span(piece).first(count * each)));
    simd::decode(format, piece.data(), values.data() + at, count);
  }
  return {};
}

std::string dims_text(std::span<const uint64_t> dims) {
  return dims.empty() ? "a number" : fmt::format("{}", fmt::join(dims, " x "));
}

Unexpected unfit(const SafetensorsReader& reader, const std::string& what) {
  return unexpected(ErrorCode::kInvalid,
                    fmt::format("'{}' does not hold this model: {}; choose the model, width and "
                                "channels it was made with",
                                reader.path(), what));
}

// The tensor `name` with these dimensions, or why it cannot be used.
Result<const TensorInfo*> find_tensor(const SafetensorsReader& reader, const std::string& name,
                                      const std::vector<uint64_t>& dims) {
  const TensorInfo* const found = reader.find(name);
  if (found == nullptr) return unfit(reader, fmt::format("it has no tensor '{}'", name));
  if (!format_of(found->dtype)) {
    return unfit(reader, fmt::format("'{}' is of type {} and F32, BF16 or F16 are read", name,
                                     checkpoint::name(found->dtype)));
  }
  if (found->shape != dims) {
    return unfit(reader, fmt::format("'{}' is {} there and {} here", name, dims_text(found->shape),
                                     dims_text(dims)));
  }
  return found;
}

bool in_head(const nn::Model& model, size_t parameter, const exec::Parameters& parameters) {
  const int node = parameters.slot(parameter).node;
  return model.nodes[static_cast<size_t>(node)].layer == model.layers - 1;
}

// Whether the head of the file is of another size than the model's.
bool head_differs(const SafetensorsReader& reader, const exec::Parameters& parameters) {
  const nn::Model& model = parameters.model();
  for (size_t p = 0; p < parameters.size(); ++p) {
    const TensorInfo* const found = reader.find(model.parameters[p].name);
    if (in_head(model, p, parameters) && found != nullptr &&
        found->shape != dims_of(model.parameters[p])) {
      return true;
    }
  }
  return false;
}

}  // namespace

Result<void> write_model(checkpoint::DirectoryWriter& directory, const exec::Parameters& parameters,
                         DType dtype, uint64_t batches) {
  const nn::Model& model = parameters.model();
  const std::map<std::string, Place> places = places_of(model);
  TRI_ASSIGN(SafetensorsWriter writer,
             SafetensorsWriter::create(directory.file(kModelFile), specs_of(model, dtype),
                                       {{"format", "pt"}}));
  std::vector<float> values, room;
  for (size_t t = 0; t < writer.tensors().size(); ++t) {
    const Place& place = places.at(writer.tensors()[t].name);
    switch (place.kind) {
      case Place::Kind::kParameter:
        for (size_t i = 0; i < parameters.pieces(place.parameter); ++i) {
          values.resize(parameters.piece(place.parameter, i).count);
          parameters.get_piece(place.parameter, i, values, room);
          TRI_TRY(append(writer, t, values));
        }
        break;
      case Place::Kind::kMean:
      case Place::Kind::kVariance:
        TRI_TRY(append(writer, t, statistics(parameters, place)));
        break;
      case Place::Kind::kBatches:
        TRI_TRY(writer.append(t, std::as_bytes(std::span(&batches, 1))));
        break;
    }
  }
  TRI_ASSIGN(checkpoint::FileRecord record, writer.finish());
  record.name = kModelFile;
  directory.add(std::move(record));
  return {};
}

Result<LoadedModel> read_model(const std::string& path, exec::Parameters& parameters,
                               bool keep_head) {
  TRI_ASSIGN(const SafetensorsReader reader, SafetensorsReader::open(path));
  const nn::Model& model = parameters.model();
  const std::map<std::string, Place> places = places_of(model);
  const bool other_head = keep_head && head_differs(reader, parameters);

  LoadedModel loaded;
  loaded.unused = static_cast<uint64_t>(std::ranges::count_if(
      reader.tensors(), [&](const TensorInfo& t) { return !places.contains(t.name); }));
  std::vector<float> values, room;
  for (const auto& [name, place] : places) {
    if (place.kind == Place::Kind::kBatches) continue;
    if (place.kind != Place::Kind::kParameter) {
      const std::span<float> kept = statistics(parameters, place);
      TRI_ASSIGN(const TensorInfo* const found, find_tensor(reader, name, {kept.size()}));
      TRI_TRY(read_values(reader, *found, 0, kept));
      continue;
    }
    if (other_head && in_head(model, place.parameter, parameters)) {
      loaded.kept.push_back(name);
      continue;
    }
    TRI_ASSIGN(const TensorInfo* const found,
               find_tensor(reader, name, dims_of(model.parameters[place.parameter])));
    parameters.clear(place.parameter);
    for (size_t i = 0; i < parameters.pieces(place.parameter); ++i) {
      const exec::Parameters::Piece piece = parameters.piece(place.parameter, i);
      values.resize(piece.count);
      TRI_TRY(read_values(reader, *found, piece.first, values));
      parameters.set_piece(place.parameter, i, values, room);
    }
  }
  return loaded;
}

}  // namespace tri::train
