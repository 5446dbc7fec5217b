#include "numeric/split.h"

#include <bit>
#include <cmath>

#include "numeric/round.h"

namespace tri::numeric {
namespace {

Split8 split_word(Format working, const FormatSpec& finer, float value) {
  if (std::isnan(value)) return {static_cast<uint16_t>(encode(working, value).bits), 0};
  const uint32_t word = encode(finer, value, Rounding::kNearestEven).bits;
  const auto low = static_cast<int8_t>(word & 0xff);
  return {static_cast<uint16_t>((word >> 8) + (low < 0 ? 1 : 0)), low};
}

float merge_word(const FormatSpec& finer, Split8 parts) {
  const uint32_t upper = parts.high - (parts.low < 0 ? 1u : 0u);
  return decode(finer, (upper & 0xffff) << 8 | static_cast<uint8_t>(parts.low));
}

}  // namespace

Split8 split_bf16_8(float value) noexcept {
  return split_word(Format::kBf16, kBf16Plus8Grid, value);
}
float merge_bf16_8(Split8 parts) noexcept { return merge_word(kBf16Plus8Grid, parts); }

Split8 split_f16_8(float value) noexcept { return split_word(Format::kF16, kF16Plus8Grid, value); }
float merge_f16_8(Split8 parts) noexcept { return merge_word(kF16Plus8Grid, parts); }

Split16 split_bf16_16(float value) noexcept {
  if (std::isnan(value)) return {static_cast<uint16_t>(encode(Format::kBf16, value).bits), 0};
  const auto word = std::bit_cast<uint32_t>(value);
  const auto low = static_cast<int16_t>(word & 0xffff);
  return {static_cast<uint16_t>((word >> 16) + (low < 0 ? 1 : 0)), low};
}

float merge_bf16_16(Split16 parts) noexcept {
  const uint32_t upper = parts.high - (parts.low < 0 ? 1u : 0u);
  return std::bit_cast<float>(upper << 16 | static_cast<uint16_t>(parts.low));
}

}  // namespace tri::numeric
