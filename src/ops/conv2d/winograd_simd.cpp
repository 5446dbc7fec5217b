// ops/conv2d/winograd_simd.cpp; contract in winograd_kernel.h. Never throws, allocates or logs.
#include "ops/conv2d/winograd_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/conv2d/winograd_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"         // after foreach_target.h
#include "ops/conv2d/panel_kernel.h"
#include "ops/window/channels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tri::ops::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// G along one axis. Halving is exact.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V filter_axis(D d, int row, V g0, V g1, V g2) {
  if (row == 0) return g0;
  if (row == 3) return g2;
  const V ends = hn::Add(g0, g2);
  return hn::Mul(hn::Set(d, 0.5f), row == 1 ? hn::Add(ends, g1) : hn::Sub(ends, g1));
}

void winograd_weights(const float* HWY_RESTRICT panel, int64_t floats, float* HWY_RESTRICT dst) {
  for_channels(floats, [=](auto d, int64_t i) TRI_LANES {
    using V = hn::Vec<decltype(d)>;
    for (int y = 0; y < 4; ++y) {
      V w[3];
      for (int x = 0; x < 3; ++x) {
        const float* tap = panel + x * floats + i;
        w[x] = filter_axis(d, y, hn::LoadU(d, tap), hn::LoadU(d, tap + 3 * floats),
                           hn::LoadU(d, tap + 6 * floats));
      }
      for (int x = 0; x < 4; ++x)
        hn::StoreU(filter_axis(d, x, w[0], w[1], w[2]), d, dst + (4 * y + x) * floats + i);
    }
  });
}

// B^T along one axis: row r of it takes the sources kFirst[r] and kSecond[r].
constexpr int kFirst[4] = {0, 1, 2, 1}, kSecond[4] = {2, 2, 1, 3};

template <class V>
HWY_INLINE V source_axis(int row, V first, V second) {
  return row == 1 ? hn::Add(first, second) : hn::Sub(first, second);
}

void winograd_source(const float* src, int64_t line, int64_t channels, int64_t tiles, float* dst,
                     int64_t step, int64_t stride) {
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const float* HWY_RESTRICT patch = src + 2 * tile * channels;
    float* HWY_RESTRICT to = dst + tile * step;
    for_channels(channels, [=](auto d, int64_t c) TRI_LANES {
      using V = hn::Vec<decltype(d)>;
      for (int y = 0; y < 4; ++y) {
        V w[4];
        for (int x = 0; x < 4; ++x) {
          const float* pixel = patch + x * channels + c;
          w[x] = source_axis(y, hn::LoadU(d, pixel + kFirst[y] * line),
                             hn::LoadU(d, pixel + kSecond[y] * line));
        }
        for (int x = 0; x < 4; ++x)
          hn::StoreU(source_axis(x, w[kFirst[x]], w[kSecond[x]]), d, to + (4 * y + x) * stride + c);
      }
    });
  }
}

template <class V>
HWY_INLINE V first_result(V m0, V m1, V m2) {
  return hn::Add(hn::Add(m0, m1), m2);
}
template <class V>
HWY_INLINE V second_result(V m1, V m2, V m3) {
  return hn::Sub(hn::Sub(m1, m2), m3);
}

// One or two lines of results: a loop over them would send the sums through memory.
template <int kLines>
void result_lines(const WinogradResult r) {
  const hn::CappedTag<float, kPanel> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t c = 0; c < kPanel; c += lanes) {
    const V bias = r.bias == nullptr ? hn::Zero(d) : hn::LoadU(d, r.bias + c);
    for (int64_t column = 0; column < r.width; column += 2) {
      const float* HWY_RESTRICT tile = r.sums + column / 2 * r.tile + c;
      V top[4], low[4];
      for (int x = 0; x < 4; ++x) {
        const float* HWY_RESTRICT m = tile + x * r.stride;
        const V m1 = hn::LoadU(d, m + 4 * r.stride), m2 = hn::LoadU(d, m + 8 * r.stride);
        top[x] = first_result(hn::LoadU(d, m), m1, m2);
        if constexpr (kLines == 2) low[x] = second_result(m1, m2, hn::LoadU(d, m + 12 * r.stride));
      }
      float* HWY_RESTRICT to = r.dst + column * r.pixel + c;
      hn::StoreU(hn::Add(first_result(top[0], top[1], top[2]), bias), d, to);
      if constexpr (kLines == 2)
        hn::StoreU(hn::Add(first_result(low[0], low[1], low[2]), bias), d, to + r.line);
      if (column + 1 == r.width) break;
      hn::StoreU(hn::Add(second_result(top[1], top[2], top[3]), bias), d, to + r.pixel);
      if constexpr (kLines == 2)
        hn::StoreU(hn::Add(second_result(low[1], low[2], low[3]), bias), d, to + r.line + r.pixel);
    }
  }
}

void winograd_result(const WinogradResult& r) {
  if (r.rows == 2)
    result_lines<2>(r);
  else
    result_lines<1>(r);
}

// A along one axis.
template <class V>
HWY_INLINE V gradient_axis(int row, V g0, V g1) {
  if (row == 0) return g0;
  if (row == 3) return hn::Neg(g1);
  return row == 1 ? hn::Add(g0, g1) : hn::Sub(g0, g1);
}

void winograd_gradient(const float* src, int64_t line, int64_t channels, int64_t tiles, float* dst,
                       int64_t step, int64_t stride) {
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const float* HWY_RESTRICT from = src + 2 * tile * channels;
    float* HWY_RESTRICT to = dst + tile * step;
    for_channels(channels, [=](auto d, int64_t c) TRI_LANES {
      const auto g00 = hn::LoadU(d, from + c), g01 = hn::LoadU(d, from + channels + c);
      const auto g10 = hn::LoadU(d, from + line + c);
      const auto g11 = hn::LoadU(d, from + line + channels + c);
      for (int y = 0; y < 4; ++y) {
        const auto left = gradient_axis(y, g00, g10), right = gradient_axis(y, g01, g11);
        for (int x = 0; x < 4; ++x)
          hn::StoreU(gradient_axis(x, left, right), d, to + (4 * y + x) * stride + c);
      }
    });
  }
}

// G^T along one axis. Halving is exact.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void taps_axis(D d, V m0, V m1, V m2, V m3, V* taps) {
  const V half = hn::Set(d, 0.5f), both = hn::Mul(half, hn::Add(m1, m2));
  taps[0] = hn::Add(m0, both);
  taps[1] = hn::Mul(half, hn::Sub(m1, m2));
  taps[2] = hn::Add(both, m3);
}

void winograd_taps(const WinogradTaps& all) {
  const WinogradTaps t = all;
  for_channels(t.floats, [=](auto d, int64_t i) TRI_LANES {
    using V = hn::Vec<decltype(d)>;
    V w[4][3];
    for (int x = 0; x < 4; ++x) {
      const float* m = t.sums + x * t.sums_stride + i;
      const int64_t row = 4 * t.sums_stride;
      taps_axis(d, hn::LoadU(d, m), hn::LoadU(d, m + row), hn::LoadU(d, m + 2 * row),
                hn::LoadU(d, m + 3 * row), w[x]);
    }
    for (int y = 0; y < 3; ++y) {
      V taps[3];
      taps_axis(d, w[0][y], w[1][y], w[2][y], w[3][y], taps);
      for (int x = 0; x < 3; ++x) {
        const int64_t tap = 3 * y + x;
        if (t.before != nullptr)
          taps[x] = hn::Add(hn::LoadU(d, t.before + tap * t.before_stride + i), taps[x]);
        hn::StoreU(taps[x], d, t.dst + tap * t.dst_stride + i);
      }
    }
  });
}

}  // namespace
}  // namespace tri::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tri::ops {
HWY_EXPORT(winograd_weights);
HWY_EXPORT(winograd_source);
HWY_EXPORT(winograd_result);
HWY_EXPORT(winograd_gradient);
HWY_EXPORT(winograd_taps);

void winograd_weights(const float* panel, int64_t floats, float* dst) noexcept {
  HWY_DYNAMIC_DISPATCH(winograd_weights)(panel, floats, dst);
}
void winograd_source(const float* src, int64_t line, int64_t channels, int64_t tiles, float* dst,
                     int64_t step, int64_t stride) noexcept {
  HWY_DYNAMIC_DISPATCH(winograd_source)(src, line, channels, tiles, dst, step, stride);
}
void winograd_result(const WinogradResult& result) noexcept {
  HWY_DYNAMIC_DISPATCH(winograd_result)(result);
}
void winograd_gradient(const float* src, int64_t line, int64_t channels, int64_t tiles, float* dst,
                       int64_t step, int64_t stride) noexcept {
  HWY_DYNAMIC_DISPATCH(winograd_gradient)(src, line, channels, tiles, dst, step, stride);
}
void winograd_taps(const WinogradTaps& taps) noexcept { HWY_DYNAMIC_DISPATCH(winograd_taps)(taps); }
}  // namespace tri::ops
#endif  // HWY_ONCE
