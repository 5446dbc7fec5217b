#pragma once
// Room: numeric. In: one fp32 value. Out: its code in a storage format, and back. These scalar
// functions define what is right; the vector forms in simd/ must give the same bits.
//
// Note [Overflow]: a format with inf codes answers a value beyond its range with inf and keeps NaN
// (quiet, upper payload bits kept). A format without them saturates: inf and everything from
// overflow_threshold() on become the largest finite value of the same sign, and so does NaN. Either
// way `overflow` is set whenever the value, once rounded, is not a finite value of the format:
// where no code can tell, the flag is the only trace, and the backward pass must look at it.
#include <cstdint>

#include "numeric/format.h"

namespace tri::numeric {

enum class Rounding : uint8_t {
  kNearestEven,  // IEEE
  kNearestAway,  // ties away from zero: add half and truncate, as the simulator of paper (c) does
};

// What encode() uses unless told otherwise.
constexpr Rounding storage_rounding(Format format) {
  return spec(format).has_inf ? Rounding::kNearestEven : Rounding::kNearestAway;
}

struct Encoded {
  uint32_t bits = 0;       // right-aligned code, storage_bytes() wide
  bool overflow = false;   // see Note [Overflow]
  bool underflow = false;  // not zero, but rounded to zero
  bool operator==(const Encoded&) const = default;
};

Encoded encode(Format format, float value, Rounding rounding) noexcept;
inline Encoded encode(Format format, float value) noexcept {
  return encode(format, value, storage_rounding(format));
}

// The same for any format with at most 8 exponent and 22 mantissa bits, such as the 24-bit ones of
// split.h.
Encoded encode(const FormatSpec& s, float value, Rounding rounding) noexcept;

// Rounds up in magnitude with the probability of the dropped fraction, given `random` uniform over
// 32 bits. Normal results are exactly unbiased: no more bits are dropped than are drawn. Among
// subnormals the fraction is cut to 31 - mantissa_bits bits first, a bias toward zero below 2^-21
// ulp (fp16). Beyond the largest finite value the next step up counts as overflow.
Encoded encode_stochastic(Format format, float value, uint32_t random) noexcept;

// Exact for every code. An fp16 signalling NaN becomes quiet, as the hardware does it.
// REQUIRES: bits < 2^(8 storage_bytes).
float decode(Format format, uint32_t bits) noexcept;
float decode(const FormatSpec& s, uint32_t bits) noexcept;

}  // namespace tri::numeric
