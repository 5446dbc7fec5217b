#include "ops/rows/weights.h"

#include <algorithm>

#include "simd/convert.h"

namespace tri::ops {

void load_weights(const Weights& w, int64_t begin, int64_t count, float* dst) noexcept {
  const auto n = static_cast<size_t>(count);
  const auto* from = static_cast<const std::byte*>(w.data) +
                     static_cast<size_t>(begin) * numeric::storage_bytes(w.format);
  simd::decode(w.format, from, dst, n);
  if (w.working == numeric::Format::kF32 || w.working == w.format) return;
  std::byte room[1024];
  const size_t piece = sizeof(room) / numeric::storage_bytes(w.working);
  for (size_t i = 0; i < n; i += piece) {
    const size_t few = std::min(piece, n - i);
    simd::encode(w.working, dst + i, room, few);
    simd::decode(w.working, room, dst + i, few);
  }
}

}  // namespace tri::ops
