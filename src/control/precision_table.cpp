#include "control/precision_table.h"

#include "base/check.h"

namespace tri::control {

PrecisionShares shares(const PrecisionTable& table, std::span<const int64_t> params,
                       int64_t others) {
  TRI_CHECK(table.size() == params.size(), "{} rows, {} layers", table.size(), params.size());
  PrecisionShares sums;
  sums.fp32 = static_cast<double>(others);
  double all = sums.fp32;
  for (size_t l = 0; l < table.size(); ++l) {
    const auto count = static_cast<double>(params[l]);
    // An fp16 layer of paper (a) keeps its weight in bf16: what it stores gives it its name.
    const Format format = table[l].y == Format::kF16 ? Format::kF16 : table[l].p;
    double& share = storage_bytes(format) == 1 ? sums.fp8
                    : format == Format::kF32   ? sums.fp32
                    : format == Format::kBf16  ? sums.bf16
                                               : sums.fp16;
    share += count;
    all += count;
  }
  if (all <= 0) return {.fp32 = 1};
  return {sums.fp32 / all, sums.bf16 / all, sums.fp16 / all, sums.fp8 / all};
}

}  // namespace tri::control
