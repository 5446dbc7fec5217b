#include "ops/rows/rows.h"

#include <algorithm>
#include <cstring>

#include "ops/rows/transform_kernel.h"
#include "simd/convert.h"

namespace tri::ops {
namespace {

// Formats other than fp32 pass through pieces of this many floats, small enough for L1.
constexpr int64_t kPieceFloats = 2048;

// `rows` rows of `channels` numbers of a stored tensor as fp32.
struct Block {
  const float* data;
  int64_t stride;
};

int64_t piece_rows(const RowRange& range) {
  return std::max<int64_t>(1, kPieceFloats / range.channels);
}

const std::byte* at(const Stored& s, const RowRange& range, int64_t row) {
  const int64_t index =
      (range.sample * s.pixels + range.pixel + row) * s.row_stride + range.channel;
  return static_cast<const std::byte*>(s.data) +
         static_cast<size_t>(index) * numeric::storage_bytes(s.format);
}

void decode_rows(const Stored& s, const RowRange& range, int64_t row, int64_t rows, float* dst,
                 int64_t dst_stride) {
  int64_t count = rows, each = range.channels;
  if (s.row_stride == range.channels && dst_stride == range.channels) {
    count = 1;
    each *= rows;
  }
  for (int64_t i = 0; i < count; ++i) {
    simd::decode(s.format, at(s, range, row + i), dst + i * dst_stride, static_cast<size_t>(each));
    if (s.scale != 1.0f) scale_floats(1.0f / s.scale, dst + i * dst_stride, each);
  }
}

// Encodes one run of numbers that is no longer than a piece, or of any length without a scale.
StoreCounts encode_run(const Sink& sink, const float* src, std::byte* to, int64_t count) {
  StoreCounts counts;
  if (takes_scale(sink.format)) counts.max_abs = max_abs(src, count);
  float room[kPieceFloats];
  if (sink.scale != 1.0f) {
    std::copy_n(src, count, room);
    scale_floats(sink.scale, room, count);
    src = room;
  }
  const simd::ConvertCounts lost = simd::encode(sink.format, src, to, static_cast<size_t>(count));
  counts.overflow = lost.overflow;
  counts.underflow = lost.underflow;
  return counts;
}

StoreCounts encode_floats(const Sink& sink, const float* src, std::byte* to, int64_t count) {
  if (!takes_scale(sink.format)) return encode_run(sink, src, to, count);
  StoreCounts counts;
  const auto width = static_cast<int64_t>(numeric::storage_bytes(sink.format));
  for (int64_t first = 0; first < count; first += kPieceFloats)
    counts +=
        encode_run(sink, src + first, to + first * width, std::min(kPieceFloats, count - first));
  return counts;
}

// Rows as fp32: where they lie if they can be read there, else decoded into `room`.
Block read_block(const Stored& s, const RowRange& range, int64_t row, int64_t rows, float* room,
                 int64_t room_stride) {
  if (s.format == Format::kF32)
    return {reinterpret_cast<const float*>(at(s, range, row)), s.row_stride};
  decode_rows(s, range, row, rows, room, room_stride);
  return {room, room_stride};
}

TransformParams params_of(const Source& source, const RowRange& range) {
  TransformParams p;
  if (source.norm.scale != nullptr) {
    const int64_t ghost = range.sample / source.norm.ghost * source.norm.stride + range.channel;
    p.scale = source.norm.scale + ghost;
    p.shift = source.norm.shift + ghost;
  }
  p.activation = source.activation;
  if (source.channel_factor != nullptr)
    p.channel_factor =
        source.channel_factor + range.sample * source.stored.channels + range.channel;
  if (source.sample_factor != nullptr) p.sample_factor = source.sample_factor[range.sample];
  return p;
}

GradParams params_of(const GradSource& source, const RowRange& range) {
  GradParams p;
  p.value = params_of(source.value, range);
  const NormLoad& norm = source.value.norm;
  const int64_t ghost =
      norm.scale == nullptr ? 0 : range.sample / norm.ghost * norm.stride + range.channel;
  if (source.a != nullptr) p.a = source.a + ghost;
  if (source.b != nullptr) {
    p.b = source.b + ghost;
    p.c = source.c + ghost;
    p.mean = source.mean + ghost;
  }
  return p;
}

const Gate* gates_at(const Source& s, const RowRange& range, int64_t row) {
  return s.gates + (range.sample * s.stored.pixels + range.pixel + row) * s.stored.channels +
         range.channel;
}

void load_gated_rows(const Source& source, const RowRange& range, float* dst, int64_t dst_stride) {
  Source open = source;
  open.gates = nullptr;
  open.activation = Activation::kNone;
  open.channel_factor = open.sample_factor = nullptr;
  load_rows(open, range, dst, dst_stride);
  for (int64_t i = 0; i < range.count; ++i) {
    const Gate* gates = gates_at(source, range, i);
    float* row = dst + i * dst_stride;
    for (int64_t c = 0; c < range.channels; ++c)
      row[c] = gates[c] == Gate::kOpen ? row[c] : gates[c] == Gate::kCut ? 0.0f : 6.0f;
  }
  if (source.channel_factor == nullptr && source.sample_factor == nullptr) return;
  TransformParams factors = params_of(source, range);
  factors.scale = nullptr;
  factors.activation = Activation::kNone;
  transform_rows(factors, dst, dst_stride, dst, dst_stride, range.count, range.channels);
}

void load_gated_grad_rows(const GradSource& source, const RowRange& range, float* dst,
                          int64_t dst_stride) {
  GradSource open = source;
  open.value.gates = nullptr;
  open.value.activation = Activation::kNone;
  load_grad_rows(open, range, dst, dst_stride);
  for (int64_t i = 0; i < range.count; ++i) {
    const Gate* gates = gates_at(source.value, range, i);
    float* row = dst + i * dst_stride;
    for (int64_t c = 0; c < range.channels; ++c) row[c] = gates[c] == Gate::kOpen ? row[c] : 0.0f;
  }
}

}  // namespace

void load_gates(const Source& source, const RowRange& range, Gate* dst, float* room) noexcept {
  Source before = source;
  before.gates = nullptr;
  before.activation = Activation::kNone;
  before.channel_factor = before.sample_factor = nullptr;
  load_rows(before, range, room, range.channels);
  const bool capped = source.activation == Activation::kRelu6;
  for (int64_t i = 0; i < range.count * range.channels; ++i)
    dst[i] = !(room[i] > 0.0f)           ? Gate::kCut
             : capped && room[i] >= 6.0f ? Gate::kCapped
                                         : Gate::kOpen;
}

void load_rows(const Source& source, const RowRange& range, float* dst,
               int64_t dst_stride) noexcept {
  if (source.gates != nullptr) return load_gated_rows(source, range, dst, dst_stride);
  const TransformParams params = params_of(source, range);
  const bool plain = source.plain();
  const int64_t piece = piece_rows(range);
  for (int64_t row = 0; row < range.count; row += piece) {
    const int64_t rows = std::min(piece, range.count - row);
    float* to = dst + row * dst_stride;
    if (plain) {
      decode_rows(source.stored, range, row, rows, to, dst_stride);
      continue;
    }
    const Block block = read_block(source.stored, range, row, rows, to, dst_stride);
    transform_rows(params, block.data, block.stride, to, dst_stride, rows, range.channels);
  }
}

void load_grad_rows(const GradSource& source, const RowRange& range, float* dst,
                    int64_t dst_stride) noexcept {
  if (source.value.gates != nullptr) return load_gated_grad_rows(source, range, dst, dst_stride);
  const GradParams params = params_of(source, range);
  const Source& value = source.value;
  const bool plain = value.activation == Activation::kNone && source.a == nullptr &&
                     value.channel_factor == nullptr && value.sample_factor == nullptr;
  const bool reads_stored = value.activation != Activation::kNone || source.b != nullptr;
  const int64_t piece = piece_rows(range);
  // A single row can be longer than a piece; then its channels are taken in turn.
  for (int64_t first = 0; first < range.channels; first += kPieceFloats) {
    RowRange part = range;
    part.channel += first;
    part.channels = std::min(kPieceFloats, range.channels - first);
    const GradParams part_params = first == 0 ? params : params_of(source, part);
    float room[kPieceFloats];
    for (int64_t row = 0; row < range.count; row += piece) {
      const int64_t rows = std::min(piece, range.count - row);
      float* to = dst + row * dst_stride + first;
      if (plain) {
        decode_rows(source.grad, part, row, rows, to, dst_stride);
        continue;
      }
      const Block grad = read_block(source.grad, part, row, rows, to, dst_stride);
      Block stored = grad;
      if (reads_stored) stored = read_block(value.stored, part, row, rows, room, part.channels);
      transform_grad_rows(part_params, grad.data, grad.stride, stored.data, stored.stride, to,
                          dst_stride, rows, part.channels);
    }
  }
}

StoreCounts store_rows(const Sink& sink, const RowRange& range, const float* src,
                       int64_t src_stride) noexcept {
  const Stored there{sink.data,       sink.format, sink.channels,
                     sink.row_stride, sink.pixels, sink.scale};
  StoreCounts counts;
  const auto put = [&](const float* from, int64_t row, int64_t n) {
    counts += encode_floats(sink, from, const_cast<std::byte*>(at(there, range, row)), n);
  };
  if (!sink.accumulate) {
    const bool whole = sink.row_stride == range.channels && src_stride == range.channels;
    if (whole) {
      put(src, 0, range.count * range.channels);
    } else {
      for (int64_t i = 0; i < range.count; ++i) put(src + i * src_stride, i, range.channels);
    }
    return counts;
  }
  if (sink.format == Format::kF32) {
    const bool whole = sink.row_stride == range.channels && src_stride == range.channels;
    const int64_t rows = whole ? 1 : range.count;
    const int64_t n = whole ? range.count * range.channels : range.channels;
    for (int64_t i = 0; i < rows; ++i)
      add_floats(src + i * src_stride, n,
                 reinterpret_cast<float*>(const_cast<std::byte*>(at(there, range, i))));
    return counts;
  }
  float room[kPieceFloats];
  for (int64_t i = 0; i < range.count; ++i) {
    for (int64_t first = 0; first < range.channels; first += kPieceFloats) {
      RowRange part = range;
      part.channel += first;
      part.channels = std::min(kPieceFloats, range.channels - first);
      decode_rows(there, part, i, 1, room, part.channels);
      add_floats(src + i * src_stride + first, part.channels, room);
      counts +=
          encode_floats(sink, room, const_cast<std::byte*>(at(there, part, i)), part.channels);
    }
  }
  return counts;
}

}  // namespace tri::ops
