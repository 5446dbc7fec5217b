#pragma once
// Room: ops. The rows of one sample as fp32, one after the other and each loaded once: in place
// where the tensor can be read there, else in a ring in the worker's scratch that holds as many
// rows as a window is high. A ring as high as the map loads it whole, in one call.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ops/rows/rows.h"

namespace tri::ops {

// Scratch is cut in lines of 64 bytes.
inline size_t ring_bytes(int64_t rows, int64_t width, int64_t channels) {
  return static_cast<size_t>((rows * width * channels + 15) / 16 * 64);
}
inline size_t address_bytes(int64_t count) { return static_cast<size_t>((count + 7) / 8 * 64); }

// The most channels, evenly cut, of which `floats_per_channel` numbers each stay in cache.
int64_t fit_channels(int64_t channels, int64_t floats_per_channel);

inline const float* in_place(const Source& source) {
  return source.direct() ? static_cast<const float*>(source.stored.data) : nullptr;
}
inline const float* in_place(const GradSource& source) {
  return source.plain() && source.grad.format == Format::kF32
             ? static_cast<const float*>(source.grad.data)
             : nullptr;
}
inline const Stored& stored_of(const Source& source) { return source.stored; }
inline const Stored& stored_of(const GradSource& source) { return source.grad; }
inline void load_into(const Source& source, const RowRange& range, float* dst) {
  load_rows(source, range, dst, range.channels);
}
inline void load_into(const GradSource& source, const RowRange& range, float* dst) {
  load_grad_rows(source, range, dst, range.channels);
}

// A source whose rows come with the slopes of its activation, `slopes` floats behind the numbers;
// 0: without.
struct SlopedSource {
  const Source& source;
  int64_t slopes = 0;
};
inline const float* in_place(const SlopedSource& s) {
  return s.slopes == 0 ? in_place(s.source) : nullptr;
}
inline const Stored& stored_of(const SlopedSource& s) { return s.source.stored; }
inline void load_into(const SlopedSource& s, const RowRange& range, float* dst) {
  if (s.slopes == 0) return load_into(s.source, range, dst);
  load_rows_with_slopes(s.source, range, dst, dst + s.slopes, range.channels);
}

template <class S>  // Source, SlopedSource or GradSource
class RowRing {
 public:
  // `memory` holds ring_bytes(slots, width, channels) for the most channels of any start().
  RowRing(const S& source, float* memory, int64_t slots, int64_t height, int64_t width)
      : source_(source),
        base_(in_place(source)),
        memory_(memory),
        slots_(slots),
        height_(height),
        width_(width) {}

  void start(int64_t sample, int64_t channel, int64_t channels) {
    sample_ = sample;
    channel_ = channel;
    channels_ = channels;
    next_ = 0;
  }
  // Floats from one pixel to the next.
  int64_t pixel() const { return base_ == nullptr ? channels_ : stored_of(source_).row_stride; }

  // The first of the asked channels of row y's first pixel. REQUIRES: since start(), no row was
  // asked for that lies `slots` or more behind y.
  const float* row(int64_t y) {
    if (base_ != nullptr) {
      const Stored& s = stored_of(source_);
      return base_ + (sample_ * s.pixels + y * width_) * s.row_stride + channel_;
    }
    const int64_t row_floats = width_ * channels_;
    if (y >= next_) {
      const int64_t begin = slots_ == height_ ? 0 : y, end = slots_ == height_ ? height_ : y + 1;
      load_into(source_, {sample_, begin * width_, (end - begin) * width_, channel_, channels_},
                memory_ + begin % slots_ * row_floats);
      next_ = end;
    }
    return memory_ + y % slots_ * row_floats;
  }

 private:
  const S& source_;
  const float* base_;  // null: rows are loaded
  float* memory_;
  int64_t slots_, height_, width_;
  int64_t sample_ = 0, channel_ = 0, channels_ = 0;
  int64_t next_ = 0;  // rows from here on have not been loaded
};

}  // namespace tri::ops
