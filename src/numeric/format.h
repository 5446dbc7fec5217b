#pragma once
// Room: numeric. The storage formats of the engine, by name and by numbers. How a value is rounded
// into one of them: round.h. A tensor in a format takes exactly storage_bytes() per element.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tri::numeric {

enum class Format : uint8_t {
  kF32,     // IEEE binary32
  kBf16,    // 1-8-7, inf and NaN
  kF16,     // IEEE binary16, 1-5-10, inf and NaN
  kF16e6,   // 1-6-9, no inf or NaN codes: the top exponent holds numbers (paper (c))
  kF8e4b4,  // 1-4-3, exponent bias 7 + 4, no inf or NaN codes: max 30 (paper (c), forward)
  kF8e5,    // 1-5-2, no inf or NaN codes: max 114688 (paper (c), backward)
};
inline constexpr size_t kFormats = 6;

// One format in numbers. value = (-1)^s 2^(e - bias) 1.m, subnormals as in IEEE.
struct FormatSpec {
  std::string_view name;  // "fp32", "bf16", "fp16", "fp16-169", "fp8-143", "fp8-152"
  int exponent_bits;
  int mantissa_bits;
  int bias;
  bool has_inf;  // IEEE-like top exponent; otherwise it holds ordinary numbers
  size_t bytes;
};
const FormatSpec& spec(Format format);
inline size_t storage_bytes(Format format) { return spec(format).bytes; }
std::optional<Format> parse_format(std::string_view name);

}  // namespace tri::numeric
