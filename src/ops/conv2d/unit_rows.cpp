#include "ops/conv2d/unit_rows.h"

#include <algorithm>

namespace tri::ops {
namespace {

// Of fp32 numbers on the way to bf16: they stay in L1.
constexpr int64_t kPieceFloats = 2048;

void load(const Source& source, const RowRange& range, float* dst, int64_t stride) {
  load_rows(source, range, dst, stride);
}
void load(const GradSource& source, const RowRange& range, float* dst, int64_t stride) {
  load_grad_rows(source, range, dst, stride);
}

bool plain(const Source& source) { return source.plain() && source.gates == nullptr; }
bool plain(const GradSource& source) {
  return source.a == nullptr && source.value.plain() && source.value.gates == nullptr;
}

const float* in_place(const Stored& stored, Products products) {
  const bool pairs = products == Products::kBf16;
  const Format wanted = pairs ? Format::kBf16 : Format::kF32;
  if (pairs && stored.row_stride % 2 != 0) return nullptr;
  return stored.format == wanted ? static_cast<const float*>(stored.data) : nullptr;
}

template <class From>
void load_any(const From& source, const RowRange& range, Products products, float* dst) {
  if (products == Products::kF32) return load(source, range, dst, range.channels);
  auto* to = reinterpret_cast<uint16_t*>(dst);
  const int64_t stride = (range.channels + 1) / 2 * 2;
  float piece[kPieceFloats];
  for (int64_t first = 0; first < range.channels; first += kPieceFloats) {
    RowRange part = range;
    part.channel += first;
    part.channels = std::min(kPieceFloats, range.channels - first);
    const int64_t rows = std::max<int64_t>(1, kPieceFloats / part.channels);
    for (int64_t row = 0; row < range.count; row += rows) {
      part.pixel = range.pixel + row;
      part.count = std::min(rows, range.count - row);
      load(source, part, piece, part.channels);
      if (stride == part.channels) {
        narrow(piece, part.count * stride, to + row * stride);
        continue;
      }
      for (int64_t i = 0; i < part.count; ++i) {
        uint16_t* numbers = to + (row + i) * stride;
        numbers[stride - 1] = 0;  // the partner of an odd one
        narrow(piece + i * part.channels, part.channels, numbers + first);
      }
    }
  }
}

}  // namespace

const float* units_in_place(const Source& source, Products products) {
  return plain(source) ? in_place(source.stored, products) : nullptr;
}

const float* units_in_place(const GradSource& source, Products products) {
  return plain(source) ? in_place(source.grad, products) : nullptr;
}

void load_unit_rows(const Source& source, const RowRange& range, Products products,
                    float* dst) noexcept {
  load_any(source, range, products, dst);
}

void load_unit_rows(const GradSource& source, const RowRange& range, Products products,
                    float* dst) noexcept {
  load_any(source, range, products, dst);
}

}  // namespace tri::ops
