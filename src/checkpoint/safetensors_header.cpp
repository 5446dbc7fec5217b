#include "checkpoint/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace tri::checkpoint {
namespace {

using Json = nlohmann::json;

struct DTypeEntry {
  std::string_view name;
  size_t bytes;
};
constexpr std::array<DTypeEntry, 15> kDTypes = {{{"F64", 8},
                                                 {"I64", 8},
                                                 {"U64", 8},
                                                 {"F32", 4},
                                                 {"I32", 4},
                                                 {"U32", 4},
                                                 {"F16", 2},
                                                 {"BF16", 2},
                                                 {"I16", 2},
                                                 {"U16", 2},
                                                 {"F8_E4M3", 1},
                                                 {"F8_E5M2", 1},
                                                 {"I8", 1},
                                                 {"U8", 1},
                                                 {"BOOL", 1}}};

template <class... Args>
Unexpected broken(fmt::format_string<Args...> format, Args&&... args) {
  return unexpected(ErrorCode::kFailed, fmt::format(format, std::forward<Args>(args)...));
}

// Number of bytes, or nothing where it exceeds 64 bits.
std::optional<uint64_t> byte_count(const TensorSpec& spec) {
  uint64_t count = bytes(spec.dtype);
  for (const uint64_t extent : spec.shape) {
    if (__builtin_mul_overflow(count, extent, &count)) return std::nullopt;
  }
  return count;
}

Result<void> check_names(const std::vector<TensorInfo>& tensors) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin != names.end()) return broken("the name '{}' occurs twice", *twin);
  return {};
}

// Takes the header event by event, so that no document tree is built from a hostile file.
class HeaderEvents final : public nlohmann::json_sax<Json> {
 public:
  Header header;
  std::string error;

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::kStart:
        return move(Place::kEntries);
      case Place::kEntry:
        if (key_ == "__metadata__") return move(Place::kMetadata);
        header.tensors.push_back({});
        header.tensors.back().name = key_;
        has_dtype_ = has_shape_ = has_offsets_ = false;
        return move(Place::kTensor);
      default:
        return unexpected_value("an object");
    }
  }

  bool end_object() override {
    if (place_ == Place::kEntries) return move(Place::kEnd);
    if (place_ == Place::kTensor && !(has_dtype_ && has_shape_ && has_offsets_)) {
      return fail("tensor '{}' lacks dtype, shape or data_offsets", header.tensors.back().name);
    }
    return move(Place::kEntries);
  }

  bool key(string_t& text) override {
    key_ = text;
    if (place_ == Place::kEntries) {
      if (key_ != "__metadata__") return move(Place::kEntry);
      if (has_metadata_) return fail("__metadata__ occurs twice");
      has_metadata_ = true;
      return move(Place::kEntry);
    }
    if (place_ == Place::kMetadata) return true;
    bool* const seen = key_ == "dtype"          ? &has_dtype_
                       : key_ == "shape"        ? &has_shape_
                       : key_ == "data_offsets" ? &has_offsets_
                                                : nullptr;
    const std::string& tensor = header.tensors.back().name;
    if (seen == nullptr) return fail("tensor '{}' has an unknown field '{}'", tensor, key_);
    if (*seen) return fail("tensor '{}' has '{}' twice", tensor, key_);
    return *seen = true;
  }

  bool string(string_t& text) override {
    if (place_ == Place::kMetadata) {
      if (header.metadata.emplace(key_, text).second) return true;
      return fail("__metadata__ has '{}' twice", key_);
    }
    if (place_ != Place::kTensor || key_ != "dtype") return unexpected_value("a string");
    const std::optional<DType> dtype = parse_dtype(text);
    TensorInfo& tensor = header.tensors.back();
    if (!dtype) return fail("tensor '{}' has the unknown dtype '{}'", tensor.name, text);
    tensor.dtype = *dtype;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::kTensor && key_ == "shape") return move(Place::kShape);
    if (place_ == Place::kTensor && key_ == "data_offsets") {
      offsets_ = 0;
      return move(Place::kOffsets);
    }
    return unexpected_value("an array");
  }

  bool end_array() override {
    if (place_ == Place::kOffsets && offsets_ != 2) {
      return fail("tensor '{}' needs two data_offsets", header.tensors.back().name);
    }
    return move(Place::kTensor);
  }

  bool number_unsigned(number_unsigned_t number) override {
    if (place_ != Place::kShape && place_ != Place::kOffsets) return unexpected_value("a number");
    TensorInfo& tensor = header.tensors.back();
    if (place_ == Place::kShape) {
      tensor.shape.push_back(number);
      return true;
    }
    if (offsets_ == 2) return fail("tensor '{}' needs two data_offsets", tensor.name);
    (offsets_++ == 0 ? tensor.begin : tensor.end) = number;
    return true;
  }

  bool null() override { return unexpected_value("null"); }
  bool boolean(bool) override { return unexpected_value("a boolean"); }
  bool binary(binary_t&) override { return unexpected_value("binary"); }
  bool number_integer(number_integer_t) override { return unexpected_value("a negative number"); }
  bool number_float(number_float_t, const string_t& text) override {
    return unexpected_value(text);
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return fail("the header is no JSON at its byte {}", position);
  }

 private:
  enum class Place { kStart, kEntries, kEntry, kMetadata, kTensor, kShape, kOffsets, kEnd };

  bool move(Place place) {
    place_ = place;
    return true;
  }
  template <class... Args>
  bool fail(fmt::format_string<Args...> format, Args&&... args) {
    error = fmt::format(format, std::forward<Args>(args)...);
    return false;
  }
  bool unexpected_value(std::string_view what) {
    return fail("the header has {} where the format has none, after the key '{}'", what, key_);
  }

  Place place_ = Place::kStart;
  std::string key_;
  bool has_metadata_ = false;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  int offsets_ = 0;
};

// Sorts by place and checks that the tensors cover the data exactly once.
Result<void> check_cover(std::vector<TensorInfo>& tensors, uint64_t data_bytes) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t covered = 0;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.begin != covered || tensor.end < tensor.begin) {
      return broken("tensor '{}' takes bytes [{}, {}) where {} was the next free one", tensor.name,
                    tensor.begin, tensor.end, covered);
    }
    if (byte_count(tensor) != tensor.bytes()) {
      return broken("tensor '{}' takes {} bytes, which its shape and dtype {} do not give",
                    tensor.name, tensor.bytes(), name(tensor.dtype));
    }
    covered = tensor.end;
  }
  if (covered != data_bytes) {
    return broken("its tensors take {} bytes of data and it has {}", covered, data_bytes);
  }
  return {};
}

// A name that is not UTF-8 would make the file unreadable to others.
std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string_view name(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].name; }
size_t bytes(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].bytes; }
std::optional<DType> parse_dtype(std::string_view name) {
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

Result<Header> lay_out(std::vector<TensorSpec> tensors, Metadata metadata) {
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const auto& a, const auto& b) { return bytes(a.dtype) > bytes(b.dtype); });
  Header header{.tensors = {}, .metadata = std::move(metadata)};
  uint64_t next = 0;
  for (TensorSpec& spec : tensors) {
    TensorInfo info;
    static_cast<TensorSpec&>(info) = std::move(spec);
    info.begin = next;
    const std::optional<uint64_t> size = byte_count(info);
    if (!size || __builtin_add_overflow(next, *size, &next)) {
      return broken("tensor '{}' is too large for any file", info.name);
    }
    info.end = next;
    header.tensors.push_back(std::move(info));
  }
  TRI_TRY(check_names(header.tensors));
  return header;
}

Result<std::string> encode_header(const Header& header) {
  std::string json(kLengthBytes, '\0');
  json += '{';
  const auto separator = [&] { return json.back() == '{' ? "" : ","; };
  if (!header.metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : header.metadata) {
      json += fmt::format("{}{}:{}", separator(), quoted(key), quoted(value));
    }
    json += '}';
  }
  for (const TensorInfo& tensor : header.tensors) {
    json += fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", separator(),
                        quoted(tensor.name), name(tensor.dtype), fmt::join(tensor.shape, ","),
                        tensor.begin, tensor.end);
  }
  json += '}';
  json.resize((json.size() + kDataAlignment - 1) / kDataAlignment * kDataAlignment, ' ');
  const uint64_t length = json.size() - kLengthBytes;
  if (length > kMaxHeaderBytes) {
    return broken("the header would take {} bytes and the format allows {}", length,
                  kMaxHeaderBytes);
  }
  for (size_t i = 0; i < kLengthBytes; ++i) json[i] = static_cast<char>(length >> (8 * i));
  return json;
}

Result<Header> parse_header(std::string_view json, uint64_t data_bytes) {
  if (json.empty() || json[0] != '{') return broken("its header does not start with '{{'");
  HeaderEvents events;
  if (!Json::sax_parse(json, &events)) {
    return broken("{}", events.error.empty() ? "the header is no JSON" : events.error);
  }
  TRI_TRY(check_names(events.header.tensors));
  TRI_TRY(check_cover(events.header.tensors, data_bytes));
  return std::move(events.header);
}

}  // namespace tri::checkpoint
