// Room: ops. Loops over the channels of a row in vectors, to be inlined into kernels.
//   for_channels(channels, body)              body(d, c): full vectors, then what is left of them
//   for_left_channels(first, channels, body)  body(d, c) for less than a vector: half of one where
//                                             vectors are long, then single lanes
//   for_channels_overlapping(channels, body)  the last full vector overlaps the one before it: only
//                                             where writing a result twice is harmless
// A body is [=](auto d, int64_t c) TRI_LANES {...}: by value, because a vector store may alias what
// is captured by reference, and always inlined, because it runs for a few nanoseconds.
#include <cstdint>

#include "hwy/highway.h"

// Per-target include guard.
#if defined(TRI_OPS_CHANNELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRI_OPS_CHANNELS_INL_H_
#undef TRI_OPS_CHANNELS_INL_H_
#else
#define TRI_OPS_CHANNELS_INL_H_
#endif

#ifndef TRI_LANES
#define TRI_LANES HWY_ATTR __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace tri::ops::HWY_NAMESPACE {

// Numbers of channels are multiples of 8 in most networks.
template <class Body>
HWY_INLINE void for_left_channels(int64_t c, int64_t channels, Body body) {
  const hwy::HWY_NAMESPACE::ScalableTag<float> d;
  if constexpr (hwy::HWY_NAMESPACE::MaxLanes(d) > 8) {
    if (c + 8 <= channels) {
      body(hwy::HWY_NAMESPACE::CappedTag<float, 8>(), c);
      c += 8;
    }
  }
  for (; c < channels; ++c) body(hwy::HWY_NAMESPACE::CappedTag<float, 1>(), c);
}

template <class Body>
HWY_INLINE void for_channels(int64_t channels, Body body) {
  const hwy::HWY_NAMESPACE::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hwy::HWY_NAMESPACE::Lanes(d));
  int64_t c = 0;
  for (; c + lanes <= channels; c += lanes) body(d, c);
  for_left_channels(c, channels, body);
}

template <class Body>
HWY_INLINE void for_channels_overlapping(int64_t channels, Body body) {
  const hwy::HWY_NAMESPACE::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hwy::HWY_NAMESPACE::Lanes(d));
  if (channels < lanes) return for_channels(channels, body);
  int64_t c = 0;
  for (; c + lanes <= channels; c += lanes) body(d, c);
  if (c < channels) body(d, channels - lanes);
}

}  // namespace tri::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
