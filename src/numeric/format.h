#pragma once
// Room: numeric. The storage formats of the engine, by name and by numbers. How a value is rounded
// into one of them: round.h. A tensor in a format takes exactly storage_bytes() per element.
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
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
  std::string_view name;
  int exponent_bits;
  int mantissa_bits;
  int bias;
  bool has_inf;  // IEEE-like top exponent; otherwise it holds ordinary numbers
  size_t bytes;
};

// In the order of Format.
inline constexpr std::array<FormatSpec, kFormats> kSpecs = {{
    {"fp32", 8, 23, 127, true, 4},
    {"bf16", 8, 7, 127, true, 2},
    {"fp16", 5, 10, 15, true, 2},
    {"fp16-169", 6, 9, 31, false, 2},
    {"fp8-143", 4, 3, 11, false, 1},
    {"fp8-152", 5, 2, 15, false, 1},
}};

constexpr const FormatSpec& spec(Format format) { return kSpecs[static_cast<size_t>(format)]; }
constexpr size_t storage_bytes(Format format) { return spec(format).bytes; }
std::optional<Format> parse_format(std::string_view name);

// 2^exponent, exact. REQUIRES: -149 <= exponent <= 127.
constexpr float power_of_two(int exponent) {
  return std::bit_cast<float>(exponent >= -126 ? static_cast<uint32_t>(exponent + 127) << 23
                                               : uint32_t{1} << (exponent + 149));
}

// The landmarks of a format, as fp32 values; all are exact.
constexpr float min_normal(Format format) { return power_of_two(1 - spec(format).bias); }
constexpr float min_subnormal(Format format) {
  return power_of_two(1 - spec(format).bias - spec(format).mantissa_bits);
}
constexpr int max_exponent(Format format) {
  return (1 << spec(format).exponent_bits) - (spec(format).has_inf ? 2 : 1) - spec(format).bias;
}
constexpr float max_finite(Format format) {
  const float top = power_of_two(max_exponent(format));
  return top + (top - power_of_two(max_exponent(format) - spec(format).mantissa_bits));
}

// The least magnitude that no longer rounds to a finite value: the largest one plus half its ulp,
// for ties to even as for ties away. 31 for fp8-143, which is the threshold of paper (c). Infinite
// for fp32, where nothing is rounded.
constexpr float overflow_threshold(Format format) {
  if (format == Format::kF32) return std::numeric_limits<float>::infinity();
  return max_finite(format) + power_of_two(max_exponent(format) - spec(format).mantissa_bits - 1);
}

}  // namespace tri::numeric
