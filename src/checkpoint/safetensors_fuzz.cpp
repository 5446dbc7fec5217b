// Any bytes as a safetensors file: the first eight choose the size of the data, the rest is the
// header. What is accepted must obey the rules and survive being written again.
#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "checkpoint/safetensors_header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tri::checkpoint;
  uint64_t data_bytes = 0;
  if (size < sizeof(data_bytes)) return 0;
  std::memcpy(&data_bytes, data, sizeof(data_bytes));
  const std::string_view json(reinterpret_cast<const char*>(data) + sizeof(data_bytes),
                              size - sizeof(data_bytes));
  const auto header = parse_header(json, data_bytes);
  if (!header) return 0;

  uint64_t covered = 0;
  for (const TensorInfo& tensor : header->tensors) {
    TRI_CHECK(tensor.begin == covered && tensor.end >= tensor.begin, "'{}'", tensor.name);
    covered = tensor.end;
  }
  TRI_CHECK(covered == data_bytes, "{} {}", covered, data_bytes);
  const auto encoded = encode_header(*header);
  TRI_CHECK(encoded.has_value() && encoded->size() % kDataAlignment == 0);
  const auto again = parse_header(std::string_view(*encoded).substr(kLengthBytes), data_bytes);
  TRI_CHECK(again.has_value() && *again == *header);
  return 0;
}
