#pragma once
// Room: ops. The transforms of Winograd's F(2x2, 3x3), channels in vector lanes, all fp32. A
// tile of 2 x 2 results comes from a patch of 4 x 4 sources: both patch and filter become 16
// numbers each, one per frequency, that meet in 16 products instead of 36.
#include <cstdint>

namespace tri::ops {

inline constexpr int64_t kFrequencies = 16;

// dst[frequency][i] = G g G^T of the filter panel[tap][i], for all i < floats.
void winograd_weights(const float* panel, int64_t floats, float* dst) noexcept;

// `tiles` neighbouring patches, two pixels apart. src: the first pixel of the first patch, pixels
// of `channels` numbers, lines `line` floats apart. dst[frequency * stride + tile * step + c].
void winograd_source(const float* src, int64_t line, int64_t channels, int64_t tiles, float* dst,
                     int64_t step, int64_t stride) noexcept;

// The same rounded to bf16, as pairs of channels (Note [Units] in pair_kernel.h): rows of weights
// [channel][16] become half as many, dst[frequency][pair][16]; sources go to
// dst[frequency * stride + tile * pairs + pair]. A channel without a neighbour has zeros beside it.
void winograd_weight_pairs(const float* panel, int64_t channels, float* dst) noexcept;
void winograd_source_pairs(const float* src, int64_t line, int64_t channels, int64_t tiles,
                           float* dst, int64_t stride) noexcept;

// Sixteen channels of a line of tiles: sums[frequency * stride + i * tile + c] of tile i become the
// results of `rows` (1 or 2) lines of `width` pixels, 2 * tiles - 1 <= width <= 2 * tiles; strides
// in floats. `bias` is (16) or null.
struct WinogradResult {
  const float* sums;
  int64_t stride, tile;
  const float* bias;
  float* dst;
  int64_t line, pixel;
  int64_t rows, width;
};
void winograd_result(const WinogradResult& result) noexcept;

// Backward to the filters. `tiles` neighbouring tiles of 2 x 2 gradients, otherwise as
// winograd_source(): dst = A g A^T.
void winograd_gradient(const float* src, int64_t line, int64_t channels, int64_t tiles, float* dst,
                       int64_t step, int64_t stride) noexcept;

// winograd_source() and winograd_gradient() rounded to bf16, as pairs of neighbouring patches, the
// last of an odd number beside zeros: channel c of pair i goes to
// first[frequency * F + c / width * panel + i * step + c % width], where F is `frequency`. `width`
// is 8 or 16.
struct WinogradPanels {
  float* first;
  int64_t width, step, panel, frequency;
};
void winograd_source_panels(const float* src, int64_t line, int64_t channels, int64_t tiles,
                            const WinogradPanels& to) noexcept;
void winograd_gradient_panels(const float* src, int64_t line, int64_t channels, int64_t tiles,
                              const WinogradPanels& to) noexcept;

// dst[tap * dst_stride + i] = before[tap * before_stride + i] + G^T m G of the sums
// m = sums[frequency * sums_stride + i], for all i < floats. `before` may be null, or dst.
struct WinogradTaps {
  const float* sums;
  int64_t sums_stride;
  const float* before;
  int64_t before_stride;
  float* dst;
  int64_t dst_stride;
  int64_t floats;
};
void winograd_taps(const WinogradTaps& taps) noexcept;

}  // namespace tri::ops
