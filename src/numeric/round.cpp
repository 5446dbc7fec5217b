#include "numeric/round.h"

#include <algorithm>
#include <bit>

namespace tri::numeric {
namespace {

// |value| as an integer significand and the grid of the format around it. The code of a magnitude
// is base + significand / 2^drop, rounded: a carry out of the mantissa lands in the exponent.
struct Placed {
  uint64_t significand;
  int drop;       // bits of the significand below the last bit of the format; >= 23 - mantissa
  uint32_t base;  // code of the binade, less its hidden bit
};

Placed place(const FormatSpec& s, uint32_t magnitude) {
  const uint32_t field = magnitude >> 23;
  const uint64_t significand = (magnitude & 0x7fffff) | (field != 0 ? 0x800000u : 0u);
  const int exponent = static_cast<int>(std::max(field, 1u)) - 127;
  const int lowest = 1 - s.bias;
  const int drop = 23 - s.mantissa_bits + std::max(lowest - exponent, 0);
  const auto binade = static_cast<uint32_t>(std::max(exponent - lowest, 0));
  return {significand, drop, binade << s.mantissa_bits};
}

uint32_t max_code(const FormatSpec& s) {
  const uint32_t all = (1u << (s.exponent_bits + s.mantissa_bits)) - 1;
  return s.has_inf ? all - (1u << s.mantissa_bits) : all;
}

// Puts sign and range rules around a rounded magnitude code.
Encoded finish(const FormatSpec& s, uint32_t word, uint32_t code) {
  Encoded out;
  const uint32_t magnitude = word & 0x7fffffff;
  out.overflow = code > max_code(s);
  out.underflow = code == 0 && magnitude != 0;
  if (out.overflow) code = max_code(s) + (s.has_inf ? 1 : 0);
  if (s.has_inf && magnitude > 0x7f800000) {
    code |= 1u << (s.mantissa_bits - 1) | (magnitude & 0x7fffff) >> (23 - s.mantissa_bits);
  }
  out.bits = word >> 31 << (s.exponent_bits + s.mantissa_bits) | code;
  return out;
}

constexpr uint32_t kBeyond = 0x7fffffff;  // a code larger than any, for inf and NaN

}  // namespace

Encoded encode(Format format, float value, Rounding rounding) noexcept {
  if (format != Format::kF32) return encode(spec(format), value, rounding);
  const auto word = std::bit_cast<uint32_t>(value);
  return {word, (word & 0x7fffffff) >= 0x7f800000, false};
}

Encoded encode(const FormatSpec& s, float value, Rounding rounding) noexcept {
  const auto word = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = word & 0x7fffffff;
  if (magnitude >= 0x7f800000) return finish(s, word, kBeyond);

  const Placed p = place(s, magnitude);
  const int drop = std::min(p.drop, 32);  // from 25 on the quotient is 0 and below the tie
  const uint64_t quotient = p.significand >> drop;
  const uint64_t twice_rest = (p.significand - (quotient << drop)) * 2;
  const uint64_t unit = uint64_t{1} << drop;
  const bool tie_up = rounding == Rounding::kNearestAway || (quotient & 1) != 0;
  const bool up = twice_rest > unit || (twice_rest == unit && tie_up);
  return finish(s, word, p.base + static_cast<uint32_t>(quotient) + (up ? 1 : 0));
}

Encoded encode_stochastic(Format format, float value, uint32_t random) noexcept {
  const FormatSpec& s = spec(format);
  const auto word = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = word & 0x7fffffff;
  if (format == Format::kF32) return {word, magnitude >= 0x7f800000, false};
  if (magnitude >= 0x7f800000) return finish(s, word, kBeyond);

  const Placed p = place(s, magnitude);
  const bool normal = magnitude >= std::bit_cast<uint32_t>(min_normal(format));
  // bf16 shares the exponents of fp32: its subnormals drop 16 bits too, none is lost.
  const int fraction = normal || s.bias == 127 ? 23 - s.mantissa_bits : 31 - s.mantissa_bits;
  const uint64_t fixed = p.drop >= fraction ? p.significand >> std::min(p.drop - fraction, 63)
                                            : p.significand << (fraction - p.drop);
  const uint64_t code = (fixed + (random >> (32 - fraction))) >> fraction;
  return finish(s, word, p.base + static_cast<uint32_t>(code));
}

float decode(Format format, uint32_t bits) noexcept {
  if (format == Format::kF32) return std::bit_cast<float>(bits);
  return decode(spec(format), bits);
}

float decode(const FormatSpec& s, uint32_t bits) noexcept {
  // The exponents of fp32: the code is its upper part, NaN as it is.
  if (s.bias == 127) return std::bit_cast<float>(bits << (23 - s.mantissa_bits));

  const int width = s.exponent_bits + s.mantissa_bits;
  const uint32_t sign = bits >> width << 31;
  const uint32_t code = bits & ((1u << width) - 1);
  const uint32_t mantissa = code & ((1u << s.mantissa_bits) - 1);
  const uint32_t field = code >> s.mantissa_bits;
  if (s.has_inf && code > max_code(s)) {
    const uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000 | quiet | mantissa << (23 - s.mantissa_bits));
  }
  const uint32_t hidden = field != 0 ? 1u << s.mantissa_bits : 0u;
  const int exponent = static_cast<int>(std::max(field, 1u)) - s.bias - s.mantissa_bits;
  const float magnitude = static_cast<float>(mantissa + hidden) * power_of_two(exponent);
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

}  // namespace tri::numeric
