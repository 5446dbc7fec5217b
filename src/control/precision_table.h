#pragma once
// Room: control. The one table that all precision policies fill: a row of formats for every weight
// layer and what follows it.
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "numeric/format.h"

namespace tri::control {

using numeric::Format;

struct PrecisionRow {
  Format p = Format::kF32;   // in which the weight works
  Format y = Format::kF32;   // saved output
  Format gy = Format::kF32;  // gradient of the output
  Format gp = Format::kF32;  // gradient of the weight
  bool operator==(const PrecisionRow&) const = default;
};
using PrecisionTable = std::vector<PrecisionRow>;

// The levels of paper (a), in the order of promotion.
enum class Level : uint8_t { kFp16, kBf16, kFp32 };

// FP16 stores activations and their gradients only; a weight has no use for its narrow range.
constexpr PrecisionRow row_of(Level level) {
  switch (level) {
    case Level::kFp16:
      return {.p = Format::kBf16, .y = Format::kF16, .gy = Format::kF16};
    case Level::kBf16:
      return {.p = Format::kBf16, .y = Format::kBf16, .gy = Format::kBf16};
    case Level::kFp32:
      return {};
  }
  return {};
}
constexpr std::string_view name(Level level) {
  return level == Level::kFp16 ? "fp16" : level == Level::kBf16 ? "bf16" : "fp32";
}

// Shares of all parameters, by format.
struct PrecisionShares {
  double fp32 = 0, bf16 = 0, fp16 = 0, fp8 = 0;  // add up to 1
};

// Of `params` by layer; `others` are parameters outside the table (norms, biases), which are fp32.
PrecisionShares shares(const PrecisionTable& table, std::span<const int64_t> params,
                       int64_t others);

}  // namespace tri::control
