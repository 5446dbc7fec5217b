#include "ops/rows/weights.h"

#include "ops/rows/merge_kernel.h"
#include "simd/convert.h"

namespace tri::ops {
namespace {

using numeric::Format;
using numeric::SplitScheme;

void merge(SplitScheme scheme, const Weights& w, size_t begin, size_t n, float* dst) {
  const size_t width = scheme == SplitScheme::kBf16Plus16 ? sizeof(int16_t) : sizeof(int8_t);
  merge_weights(scheme, static_cast<const uint16_t*>(w.data) + begin,
                static_cast<const std::byte*>(w.remainder) + begin * width, dst, n);
}

void decode(const Weights& w, size_t begin, size_t n, float* dst) {
  using Remainder = Weights::Remainder;
  switch (w.working == Format::kF32 ? w.remainder_kind : Remainder::kNone) {
    case Remainder::kNone:
      return simd::decode(
          w.format,
          static_cast<const std::byte*>(w.data) + begin * numeric::storage_bytes(w.format), dst, n);
    case Remainder::kBf16x8:
      return merge(SplitScheme::kBf16Plus8, w, begin, n, dst);
    case Remainder::kBf16x16:
      return merge(SplitScheme::kBf16Plus16, w, begin, n, dst);
    case Remainder::kF16x8:
      return merge(SplitScheme::kF16Plus8, w, begin, n, dst);
  }
}

}  // namespace

void load_weights(const Weights& w, int64_t begin, int64_t count, float* dst) noexcept {
  const auto n = static_cast<size_t>(count);
  decode(w, static_cast<size_t>(begin), n, dst);
  if (w.working == Format::kF32 || w.working == w.format) return;
  simd::round_to(w.working, dst, dst, n);
}

}  // namespace tri::ops
