#pragma once
// Room: numeric. In: one fp32 weight. Out: a 16-bit working weight, read by the forward and
// backward passes, and 8 or 16 extra bits, read by the update alone; and back. No fp32 copy is kept
// (paper (b)).
//
// Note [Split weights]: the weight is first rounded to nearest even onto a grid with the exponents
// of the working format and 8 (or 16) more mantissa bits. Of that word the upper part, rounded to
// nearest with ties away, is the working weight and the signed distance to it the extra byte:
//   word = (high << 8) + low,  -128 <= low <= 127
// so that `low` counts 128ths of half an ulp of `high` and a carry into the exponent needs no care.
// merge() undoes this exactly: merge(split(x)) is x rounded to the finer grid, and a second round
// trip changes nothing.
//   scheme     finer grid   largest error of merge(split(x)), e = exponent of x
//   bf16+8     1-8-15       2^(e - 16)            (subnormals 2^-142)
//   bf16+16    fp32         0
//   fp16+8     1-5-18       2^(e - 19)            (subnormals 2^-33)
// Range: from the overflow_threshold() of the working format on, `high` is inf, as the format has
// it, while merge() still gives the finite weight, up to the range of the finer grid. Inf stays
// inf. NaN stays NaN, quiet, with low = 0: there a carry would turn the working weight into zero.
#include <cstdint>

#include "numeric/format.h"

namespace tri::numeric {

enum class SplitScheme : uint8_t { kBf16Plus8, kBf16Plus16, kF16Plus8 };

// The finer grids, as formats of their own.
inline constexpr FormatSpec kBf16Plus8Grid = {"bf16+8", 8, 15, 127, true, 3};
inline constexpr FormatSpec kF16Plus8Grid = {"fp16+8", 5, 18, 15, true, 3};

struct Split8 {
  uint16_t high = 0;  // a code of the working format
  int8_t low = 0;
  bool operator==(const Split8&) const = default;
};

struct Split16 {
  uint16_t high = 0;
  int16_t low = 0;
  bool operator==(const Split16&) const = default;
};

Split8 split_bf16_8(float value) noexcept;
Split16 split_bf16_16(float value) noexcept;
Split8 split_f16_8(float value) noexcept;

// REQUIRES: a pair that split made.
float merge_bf16_8(Split8 parts) noexcept;
float merge_bf16_16(Split16 parts) noexcept;
float merge_f16_8(Split8 parts) noexcept;

}  // namespace tri::numeric
