#pragma once
// Room: ops. A weight as kernels read it: a range of its storage as fp32 numbers, rounded to the
// format in which the layer works. How it is stored is the optimizer's choice (design: --weights),
// in which format it works the precision table's.
#include <cstddef>
#include <cstdint>

#include "numeric/format.h"

namespace tri::ops {

struct Weights {
  enum class Remainder : uint8_t { kNone, kBf16x8, kBf16x16, kF16x8 };

  const void* data = nullptr;
  numeric::Format format = numeric::Format::kF32;  // of the main part
  const void* remainder = nullptr;                 // read only where the layer works in fp32
  Remainder remainder_kind = Remainder::kNone;
  numeric::Format working = numeric::Format::kF32;  // values are rounded to it on load

  // fp32 numbers can be read where they lie.
  bool direct() const {
    return format == numeric::Format::kF32 && working == numeric::Format::kF32;
  }
};

// dst[i] = weight[begin + i] as the layer sees it.
void load_weights(const Weights& weights, int64_t begin, int64_t count, float* dst) noexcept;

}  // namespace tri::ops
