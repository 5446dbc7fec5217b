#include "ops/rows/rows.h"

#include <algorithm>
#include <cstring>

#include "ops/rows/transform_kernel.h"
#include "simd/convert.h"

namespace tri::ops {
namespace {

// Formats that no transform reads by itself pass through pieces of this many floats, small enough
// for L1.
constexpr int64_t kPieceFloats = 2048;

int64_t piece_rows(const RowRange& range) {
  return std::max<int64_t>(1, kPieceFloats / range.channels);
}

const std::byte* at(const Stored& s, const RowRange& range, int64_t row) {
  const int64_t index =
      (range.sample * s.pixels + range.pixel + row) * s.row_stride + range.channel;
  return static_cast<const std::byte*>(s.data) +
         static_cast<size_t>(index) * numeric::storage_bytes(s.format);
}

Stored stored_at(const Sink& sink) {
  return {sink.data, sink.format, sink.channels, sink.row_stride, sink.pixels, sink.scale};
}

void decode_rows(const Stored& s, const RowRange& range, int64_t row, int64_t rows, float* dst,
                 int64_t dst_stride) {
  int64_t count = rows, each = range.channels;
  if (s.row_stride == each && dst_stride == each) {  // one long row
    each *= rows;
    count = 1;
  }
  if (converts_on_load(s.format))
    return transform_rows({}, {at(s, range, row), s.format, s.row_stride, 1.0f / s.scale}, dst,
                          dst_stride, count, each);
  for (int64_t i = 0; i < count; ++i)
    simd::decode_scaled(s.format, at(s, range, row + i), dst + i * dst_stride,
                        static_cast<size_t>(each), 1.0f / s.scale);
}

StoreCounts encode_rows(const Sink& sink, const RowRange& range, int64_t row, int64_t rows,
                        const float* src, int64_t src_stride) {
  auto* to = const_cast<std::byte*>(at(stored_at(sink), range, row));
  const simd::ScaledCounts counts = simd::encode_rows(
      sink.format, src, static_cast<size_t>(src_stride), to, static_cast<size_t>(sink.row_stride),
      static_cast<size_t>(rows), static_cast<size_t>(range.channels), sink.scale);
  return {counts.lost.overflow, counts.lost.underflow,
          takes_scale(sink.format) ? counts.max_abs : 0.0f};
}

// Adds to what is there.
StoreCounts add_rows(const Sink& sink, const RowRange& range, const float* src,
                     int64_t src_stride) {
  const Stored there = stored_at(sink);
  float room[kPieceFloats];
  StoreCounts counts;
  // A single row can be longer than a piece; then its channels are taken in turn.
  for (int64_t first = 0; first < range.channels; first += kPieceFloats) {
    RowRange part = range;
    part.channel += first;
    part.channels = std::min(kPieceFloats, range.channels - first);
    const int64_t piece = piece_rows(part);
    for (int64_t row = 0; row < range.count; row += piece) {
      const int64_t rows = std::min(piece, range.count - row);
      decode_rows(there, part, row, rows, room, part.channels);
      for (int64_t i = 0; i < rows; ++i)
        add_floats(src + (row + i) * src_stride + first, part.channels, room + i * part.channels);
      counts += encode_rows(sink, part, row, rows, room, part.channels);
    }
  }
  return counts;
}

// Rows as a transform reads them: where they lie if it can, else decoded into `room`.
RowsAt read_rows(const Stored& s, const RowRange& range, int64_t row, int64_t rows, bool in_place,
                 float* room, int64_t room_stride) {
  if (in_place) return {at(s, range, row), s.format, s.row_stride, 1.0f / s.scale};
  decode_rows(s, range, row, rows, room, room_stride);
  return {room, Format::kF32, room_stride};
}

// Of the tensor, beside GY.
bool reads_stored(const GradSource& source) {
  return source.value.activation != Activation::kNone || source.b != nullptr;
}

GradParams params_of(const GradSource& source, const RowRange& range) {
  // Made where it stays: a copy would read across what was just written in parts, and wait until
  // all stores before it have left the processor.
  GradParams p{.value = params_of(source.value, range)};
  const NormLoad& norm = source.value.norm;
  const int64_t ghost =
      norm.scale == nullptr ? 0 : range.sample / norm.ghost * norm.stride + range.channel;
  if (source.channel_addend != nullptr)
    p.channel_addend =
        source.channel_addend + range.sample * source.value.stored.channels + range.channel;
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
  transform_rows(factors, {dst, Format::kF32, dst_stride}, dst, dst_stride, range.count,
                 range.channels);
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

TransformParams params_of(const Source& source, const RowRange& range) noexcept {
  TransformParams p;
  if (source.norm.scale != nullptr) {
    const int64_t ghost = range.sample / source.norm.ghost * source.norm.stride + range.channel;
    p.scale = source.norm.scale + ghost;
    p.shift = source.norm.shift + ghost;
  }
  p.activation = source.activation;
  p.of_half = source.of_half;
  if (source.channel_factor != nullptr)
    p.channel_factor =
        source.channel_factor + range.sample * source.stored.channels + range.channel;
  if (source.sample_factor != nullptr) p.sample_factor = source.sample_factor[range.sample];
  return p;
}

RowsAt rows_at(const Stored& stored, const RowRange& range) noexcept {
  return {at(stored, range, 0), stored.format, stored.row_stride, 1.0f / stored.scale};
}

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
  if (source.plain()) return decode_rows(source.stored, range, 0, range.count, dst, dst_stride);
  const TransformParams params = params_of(source, range);
  const bool in_place = converts_on_load(source.stored.format);
  const int64_t piece = in_place ? range.count : piece_rows(range);
  for (int64_t row = 0; row < range.count; row += piece) {
    const int64_t rows = std::min(piece, range.count - row);
    float* to = dst + row * dst_stride;
    transform_rows(params, read_rows(source.stored, range, row, rows, in_place, to, dst_stride), to,
                   dst_stride, rows, range.channels);
  }
}

void load_rows_with_slopes(const Source& source, const RowRange& range, float* dst, float* slopes,
                           int64_t stride) noexcept {
  const bool in_place = converts_on_load(source.stored.format);
  const int64_t piece = in_place ? range.count : piece_rows(range);
  for (int64_t row = 0; row < range.count; row += piece) {
    const int64_t rows = std::min(piece, range.count - row), at = row * stride;
    transform_rows_with_slopes(
        params_of(source, range),
        read_rows(source.stored, range, row, rows, in_place, dst + at, stride), dst + at,
        slopes + at, stride, rows, range.channels);
  }
}

void load_grad_rows(const GradSource& source, const RowRange& range, float* dst,
                    int64_t dst_stride) noexcept {
  if (source.value.gates != nullptr) return load_gated_grad_rows(source, range, dst, dst_stride);
  const Stored& value = source.value.stored;
  if (source.plain()) return decode_rows(source.grad, range, 0, range.count, dst, dst_stride);
  const bool with_stored = reads_stored(source);
  const bool in_place = converts_on_load(source.grad.format) &&
                        (!with_stored || (converts_on_load(value.format) &&
                                          read_together(source.grad.format, value.format)));
  if (in_place) {
    const RowsAt grad = read_rows(source.grad, range, 0, range.count, true, nullptr, 0);
    const RowsAt stored =
        with_stored ? read_rows(value, range, 0, range.count, true, nullptr, 0) : grad;
    return transform_grad_rows(params_of(source, range), grad, stored, dst, dst_stride, range.count,
                               range.channels);
  }
  RowRange part = range;
  const int64_t piece = piece_rows(range);
  for (int64_t row = 0; row < range.count; row += piece) {
    part.pixel = range.pixel + row;
    part.count = std::min(piece, range.count - row);
    float* to = dst + row * dst_stride;
    decode_rows(source.grad, part, 0, part.count, to, dst_stride);
    differentiate_rows(source, part, to, dst_stride);
  }
}

void differentiate_rows(const GradSource& source, const RowRange& range, float* rows,
                        int64_t stride) noexcept {
  const Stored& value = source.value.stored;
  const bool in_place = !reads_stored(source) || converts_on_load(value.format);
  for (int64_t first = 0; first < range.channels; first += kPieceFloats) {
    RowRange part = range;
    part.channel += first;
    part.channels = in_place ? range.channels : std::min(kPieceFloats, range.channels - first);
    const GradParams params = params_of(source, part);
    const int64_t piece = in_place ? range.count : piece_rows(part);
    float room[kPieceFloats];
    for (int64_t row = 0; row < range.count; row += piece) {
      const int64_t count = std::min(piece, range.count - row);
      float* at_once = rows + row * stride + first;
      const RowsAt grad{at_once, Format::kF32, stride};
      const RowsAt stored = reads_stored(source)
                                ? read_rows(value, part, row, count, in_place, room, part.channels)
                                : grad;
      transform_grad_rows(params, grad, stored, at_once, stride, count, part.channels);
    }
    if (in_place) return;
  }
}

StoreCounts store_rows(const Sink& sink, const RowRange& range, const float* src,
                       int64_t src_stride) noexcept {
  const bool whole = sink.row_stride == range.channels && src_stride == range.channels;
  RowRange run = range;
  if (whole && (!sink.accumulate || sink.format == Format::kF32)) {  // one long row
    run.channels = range.count * range.channels;
    run.count = 1;
  }
  if (!sink.accumulate) return encode_rows(sink, run, 0, run.count, src, src_stride);
  if (sink.format != Format::kF32) return add_rows(sink, run, src, src_stride);
  for (int64_t i = 0; i < run.count; ++i)
    add_floats(src + i * src_stride, run.channels,
               reinterpret_cast<float*>(const_cast<std::byte*>(at(stored_at(sink), run, i))));
  return {};
}

}  // namespace tri::ops
