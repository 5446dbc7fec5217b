#pragma once
// Room: checkpoint. The JSON header of a safetensors file, both ways, by the published rules:
// u64 little-endian length, at most 100 MB; an object that starts with '{' and may end in spaces;
// tensors without holes, overlap or duplicates; __metadata__ of strings. No files here.
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tri/result.h"

namespace tri::checkpoint {

enum class DType : uint8_t {
  kF64,
  kI64,
  kU64,
  kF32,
  kI32,
  kU32,
  kF16,
  kBf16,
  kI16,
  kU16,
  kF8E4M3,
  kF8E5M2,
  kI8,
  kU8,
  kBool,
};
std::string_view name(DType dtype);  // as in the file: "F32", "BF16"
size_t bytes(DType dtype);
std::optional<DType> parse_dtype(std::string_view name);

struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<uint64_t> shape;  // C order; empty for a scalar, a 0 in it for an empty tensor
  bool operator==(const TensorSpec&) const = default;
};

struct TensorInfo : TensorSpec {
  uint64_t begin = 0;  // bytes, from the start of the data
  uint64_t end = 0;
  uint64_t bytes() const { return end - begin; }
  bool operator==(const TensorInfo&) const = default;
};

using Metadata = std::map<std::string, std::string>;

struct Header {
  std::vector<TensorInfo> tensors;  // in the order of their bytes
  Metadata metadata;
  bool operator==(const Header&) const = default;
};

inline constexpr size_t kLengthBytes = 8;
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
// Data starts on a multiple of this, so that a mapped fp32 tensor is aligned for any vector.
inline constexpr size_t kDataAlignment = 64;

// Gives every tensor its place: larger types first, so that each is aligned to its own size, and
// otherwise in the order given. Fails on duplicate names and on sizes beyond 64 bits.
Result<Header> lay_out(std::vector<TensorSpec> tensors, Metadata metadata);

// Length and JSON, padded with spaces to kDataAlignment: all that precedes the data.
Result<std::string> encode_header(const Header& header);

// `json` is what follows the length; `data_bytes` what follows the JSON. The error names the rule
// that was broken, not the file.
Result<Header> parse_header(std::string_view json, uint64_t data_bytes);

}  // namespace tri::checkpoint
