#include "ops/conv2d/unit_rows.h"

#include <algorithm>
#include <cstring>

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
bool plain(const GradSource& source) { return source.plain() && source.value.gates == nullptr; }

const float* in_place(const Stored& stored, Products products) {
  const bool pairs = products == Products::kBf16;
  const Format wanted = pairs ? Format::kBf16 : Format::kF32;
  if (pairs && stored.row_stride % 2 != 0) return nullptr;
  return stored.format == wanted ? static_cast<const float*>(stored.data) : nullptr;
}

// Images have rows of three numbers, too short to be narrowed one by one: many are at once, and
// moved apart as words of four numbers, the last of which is the next row's first.
constexpr int64_t kColours = 3;
void pair_colours(const float* rows, int64_t count, uint16_t* numbers) {
  constexpr int64_t kRows = 512;
  uint16_t narrowed[kColours * kRows + 1];
  narrowed[kColours * kRows] = 0;
  for (int64_t done = 0; done < count; done += kRows) {
    const int64_t some = std::min(kRows, count - done);
    narrow(rows + done * kColours, some * kColours, narrowed);
    for (int64_t i = 0; i < some; ++i, numbers += kColours + 1) {
      std::memcpy(numbers, narrowed + i * kColours, (kColours + 1) * sizeof(uint16_t));
      numbers[kColours] = 0;  // the partner of the last one
    }
  }
}

template <class From>
void load_any(const From& source, const RowRange& range, Products products, float* dst) {
  if (products == Products::kF32) return load(source, range, dst, range.channels);
  const int64_t stride = units(products, range.channels);
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
      // A part of a row is followed by the next part, not by the next row.
      const int64_t together = part.channels == range.channels ? part.count : 1;
      for (int64_t i = 0; i < part.count; i += together)
        pair_channels(piece + i * part.channels, together, part.channels,
                      dst + (row + i) * stride + first / 2);
    }
  }
}

}  // namespace

void pair_channels(const float* rows, int64_t count, int64_t channels, float* dst) noexcept {
  auto* numbers = reinterpret_cast<uint16_t*>(dst);
  if (channels % 2 == 0) return narrow(rows, count * channels, numbers);
  if (channels == kColours) return pair_colours(rows, count, numbers);
  for (int64_t i = 0; i < count; ++i, numbers += channels + 1) {
    narrow(rows + i * channels, channels, numbers);
    numbers[channels] = 0;  // the partner of the last one
  }
}

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
