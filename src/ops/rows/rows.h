#pragma once
// Room: ops. How every kernel reads and writes stored tensors: as rows of fp32 in scratch. Storage
// format, normalisation, activation and gating are settled here, once, so that kernels know only
// fp32. A row is one pixel: `channels` numbers, channels innermost.
//
// Note [Load transform]. conv -> batch norm -> activation stores one tensor, the convolution's
// output. Whoever reads it recomputes
//     value = activation(scale * stored + shift) * channel_factor * sample_factor
// where scale and shift belong to the sample's ghost batch. The gradient that is kept (GY) is that
// of `value` before the factors are taken off; the gradient of `stored` is rebuilt from it on load:
//     dz = (GY * factors + channel_addend) * activation'(scale * stored + shift)
//     d stored = a * dz + b * (stored - mean) + c   (batch norm's backward, per ghost batch)
#include <cstddef>
#include <cstdint>

#include "numeric/format.h"
#include "ops/op.h"

namespace tri::ops {

using numeric::Format;

// A tensor as it lies in memory: (samples, pixels, row_stride), of which a row's first `channels`
// belong to the view.
struct Stored {
  const void* data = nullptr;
  Format format = Format::kF32;
  int64_t channels = 0;
  int64_t row_stride = 0;  // elements from one pixel to the next
  int64_t pixels = 0;      // of one sample
  float scale = 1.0f;      // a power of two: what lies in memory is the value times this
};

// Batch norm seen from the load side: (ghosts, channels) each.
struct NormLoad {
  const float* scale = nullptr;  // null: no normalisation
  const float* shift = nullptr;
  int64_t stride = 0;  // floats from one ghost batch to the next
  int64_t ghost = 1;   // samples in a ghost batch
};

// On which side of its kinks a number is: what a relu or relu6 does with it.
enum class Gate : uint8_t { kCut, kOpen, kCapped };

struct Source {
  Stored stored;
  NormLoad norm;
  Activation activation = Activation::kNone;
  // What is activated was stored in 16 bits or fewer, and needs no more exact activation than that
  // (simd::Accuracy). Said by whoever chose the format: the one at hand may be a wider copy.
  bool of_half = false;
  const float* channel_factor = nullptr;  // (samples, channels), or null
  const float* sample_factor = nullptr;   // (samples), or null
  // (samples, pixels, channels), or null: the sides are given, whatever the stored numbers say, so
  // that a relu or relu6 is linear. Gradients then need frozen statistics.
  const Gate* gates = nullptr;

  bool plain() const { return norm.scale == nullptr && activation == Activation::kNone && alike(); }
  bool direct() const { return plain() && stored.format == Format::kF32; }
  // Whether a ghost batch's samples are all read in the same way.
  bool alike() const { return channel_factor == nullptr && sample_factor == nullptr; }
};

// The gradient of a stored tensor: GY and what it takes to rebuild it.
struct GradSource {
  Stored grad;   // GY
  Source value;  // of the tensor itself; its data are read only if norm or activation need them
  const float* a = nullptr;  // (ghosts, channels) like value.norm; null: no norm
  const float* b = nullptr;  // null with frozen statistics: d stored = a * dz
  const float* c = nullptr;
  const float* mean = nullptr;
  const float* channel_addend = nullptr;  // (samples, channels), or null: what a pool sends back

  bool plain() const {  // GY as it lies; it has no norm either, which would rest on the value's
    return a == nullptr && channel_addend == nullptr && value.activation == Activation::kNone &&
           value.channel_factor == nullptr && value.sample_factor == nullptr;
  }
  bool alike() const { return value.alike() && channel_addend == nullptr; }
};

struct RowRange;

// Told of rows as they become final, while they are still in cache. Note [Watched rows] in
// ops/batch_norm/norm.h.
class RowWatcher {
 public:
  // Rows on their way to the tensor, in fp32 and `stride` floats apart, for the watcher to change;
  // before finished(). Operations of which Needs does not say so may leave it out.
  virtual void pass(const RowRange& /*range*/, float* /*rows*/, int64_t /*stride*/) const noexcept {
  }
  // Whether all that pass() does is to multiply by the slopes of the tensor's activation. Then
  // whoever has them (load_rows_with_slopes) may do it instead.
  virtual bool passes_by_slope() const noexcept { return false; }
  // Called from many threads at once, every number of a tensor once; pixels may run into the
  // samples that follow. Must not throw.
  virtual void finished(const RowRange& range, size_t worker) noexcept = 0;

 protected:
  ~RowWatcher() = default;
};

struct Sink {
  void* data = nullptr;
  Format format = Format::kF32;
  int64_t channels = 0;
  int64_t row_stride = 0;
  int64_t pixels = 0;
  bool accumulate = false;        // adds to what is there, one rounding
  float scale = 1.0f;             // as Stored::scale
  RowWatcher* watcher = nullptr;  // obeyed by operations that say so, see Needs

  void pass(const RowRange& range, float* rows, int64_t stride) const {
    if (watcher != nullptr && !accumulate) watcher->pass(range, rows, stride);
  }
  bool by_slope() const { return watcher != nullptr && !accumulate && watcher->passes_by_slope(); }
  void tell(const RowRange& range, size_t worker) const {
    if (watcher != nullptr) watcher->finished(range, worker);
  }
  bool direct() const { return format == Format::kF32 && !accumulate; }
};

// What storing lost, summed over the elements of a call.
struct StoreCounts {
  uint64_t overflow = 0;   // beyond the largest number of the format, or not finite
  uint64_t underflow = 0;  // non-zero, stored as zero
  float max_abs = 0;       // of the values, before scaling; only of formats that need a scale
  StoreCounts& operator+=(const StoreCounts& other) {
    overflow += other.overflow;
    underflow += other.underflow;
    max_abs = other.max_abs > max_abs ? other.max_abs : max_abs;
    return *this;
  }
};

// Where `count` consecutive pixels begin, and the channels wanted of them. The pixels may run into
// the samples that follow as long as the transform is the same for all: one ghost batch, no
// factors, no addend.
struct RowRange {
  int64_t sample;
  int64_t pixel;
  int64_t count;
  int64_t channel = 0;  // first channel
  int64_t channels;     // how many
};

// Whose range is so narrow that tensors are scaled into it, see Stored::scale.
constexpr bool takes_scale(Format format) {
  return format == Format::kF16 || format == Format::kF8e4b4;
}

// dst[i * dst_stride + c] for the range's pixels i and channels c.
void load_rows(const Source& source, const RowRange& range, float* dst,
               int64_t dst_stride) noexcept;
// The same and, just as far apart, the derivatives of the activation. REQUIRES: no factors, no
// gates.
void load_rows_with_slopes(const Source& source, const RowRange& range, float* dst, float* slopes,
                           int64_t stride) noexcept;
// The sides on which the activated numbers of the range are; dst is one row after the other.
// `room`: count * channels floats.
void load_gates(const Source& source, const RowRange& range, Gate* dst, float* room) noexcept;
// The gradient of the stored tensor.
void load_grad_rows(const GradSource& source, const RowRange& range, float* dst,
                    int64_t dst_stride) noexcept;
// The same where GY lies in `rows`, which become the gradient, and not in the tensor. REQUIRES: no
// gates.
void differentiate_rows(const GradSource& source, const RowRange& range, float* rows,
                        int64_t stride) noexcept;
StoreCounts store_rows(const Sink& sink, const RowRange& range, const float* src,
                       int64_t src_stride) noexcept;

}  // namespace tri::ops
