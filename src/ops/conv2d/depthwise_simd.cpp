// ops/conv2d/depthwise_simd.cpp; contract in depthwise_kernel.h. Never throws, allocates or logs.
#include "ops/conv2d/depthwise_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/conv2d/depthwise_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"         // after foreach_target.h
#include "ops/window/channels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tri::ops::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Eight columns share their sources: a 5x5 window of stride 1 loads 12 columns instead of 40, and
// eight chains hide the latency of FMA. With 5 weights and a source they fill 14 of 16 registers.
constexpr int kColumns = 8;
// Four gradients meet two rows of 5 taps, or three of 3: chains enough for FMA, and with a source
// 15 of 16 registers.
constexpr int kGradColumns = 4;

template <class D>
HWY_INLINE hn::Vec<D> start_value(D d, const float* bias, int64_t c) {
  return bias == nullptr ? hn::Zero(d) : hn::LoadU(d, bias + c);
}

// Source column kJ of a block meets the results that its taps reach. A recursion, because the
// compiler gives up unrolling a loop of this size and then keeps the weights in memory.
template <int kStep, int kJ, class D, class V, size_t kTaps, size_t kCols>
HWY_INLINE void meet_columns(D d, const float* HWY_RESTRICT x, int64_t pixel,
                             const V (&weight)[kTaps], V (&acc)[kCols]) {
  constexpr int kLast = (static_cast<int>(kCols) - 1) * kStep + static_cast<int>(kTaps) - 1;
  const V value = hn::LoadU(d, x);
  for (int o = 0; o < static_cast<int>(kCols); ++o)
    if (kJ >= o * kStep && kJ < o * kStep + static_cast<int>(kTaps))
      acc[o] = hn::MulAdd(value, weight[kJ - o * kStep], acc[o]);
  if constexpr (kJ < kLast) meet_columns<kStep, kJ + 1>(d, x + pixel, pixel, weight, acc);
}

template <class D>
HWY_INLINE void store_result(D d, const DepthwiseRow& r, int64_t column, int64_t c,
                             hn::Vec<D> result) {
  if (r.factors != nullptr)
    result = hn::Mul(result, hn::LoadU(d, r.factors + column * r.channels + c));
  hn::StoreU(result, d, r.dst + column * r.dst_pixel + c);
}

// kCols columns, kStep sources apart, of kTaps horizontal taps each.
template <int kTaps, int kStep, int kCols>
HWY_INLINE void columns(const DepthwiseRow r, int64_t src, const float* HWY_RESTRICT weights,
                        int64_t column) {
  const int64_t pixel = r.src_pixel, next = r.tap_step * r.weight_tap;
  for_channels_overlapping(r.channels, [=](auto d, int64_t c) TRI_LANES {
    using V = hn::Vec<decltype(d)>;
    V acc[kCols];
    for (int o = 0; o < kCols; ++o) acc[o] = start_value(d, r.bias, c);
    for (int64_t i = 0; i < r.src_count; ++i) {
      const float* HWY_RESTRICT x = r.src[i] + src * pixel + c;
      const float* HWY_RESTRICT w = weights + i * r.weight_row + c;
      V weight[kTaps];
      for (int t = 0; t < kTaps; ++t) weight[t] = hn::LoadU(d, w + t * next);
      meet_columns<kStep, 0>(d, x, pixel, weight, acc);
    }
    for (int o = 0; o < kCols; ++o) store_result(d, r, column + o * r.dst_step, c, acc[o]);
  });
}

// The columns of a run from `first` on: as many as possible kCols at a time, then half of that.
template <int kTaps, int kStep, int kCols>
HWY_INLINE void columns_from(const DepthwiseRow r, const ColumnRun run, int64_t first) {
  const float* weights = r.weights + run.k * r.weight_tap;
  for (; first + kCols <= run.count; first += kCols)
    columns<kTaps, kStep, kCols>(r, run.src + first * kStep, weights, run.dst + first * r.dst_step);
  if constexpr (kCols > 1)
    if (first < run.count) columns_from<kTaps, kStep, kCols / 2>(r, run, first);
}

template <int kTaps, int kStep>
void run_of(const DepthwiseRow& r, const ColumnRun& run) {
  columns_from<kTaps, kStep, kColumns>(r, run, 0);
}

void run_of_any(const DepthwiseRow r, const ColumnRun run) {
  const float* weights = r.weights + run.k * r.weight_tap;
  for (int64_t i = 0; i < run.count; ++i) {
    const int64_t src = run.src + i * r.src_step;
    const int64_t column = run.dst + i * r.dst_step;
    for_channels_overlapping(r.channels, [=](auto d, int64_t c) TRI_LANES {
      auto acc = start_value(d, r.bias, c);
      for (int64_t row = 0; row < r.src_count; ++row) {
        for (int64_t t = 0; t < run.taps; ++t) {
          const auto value = hn::LoadU(d, r.src[row] + (src + t) * r.src_pixel + c);
          const auto weight =
              hn::LoadU(d, weights + row * r.weight_row + t * r.tap_step * r.weight_tap + c);
          acc = hn::MulAdd(value, weight, acc);
        }
      }
      store_result(d, r, column, c, acc);
    });
  }
}

void depthwise_row(const DepthwiseRow& r) {
  for (size_t i = 0; i < r.run_count; ++i) {
    const ColumnRun& run = r.runs[i];
    // A single column has no next one: edges take the form of stride 1.
    const int64_t step = run.count == 1 ? 1 : r.src_step;
    if (step == 1 && run.taps == 3)
      run_of<3, 1>(r, run);
    else if (step == 2 && run.taps == 3)
      run_of<3, 2>(r, run);
    else if (step == 1 && run.taps == 5)
      run_of<5, 1>(r, run);
    else if (step == 2 && run.taps == 5)
      run_of<5, 2>(r, run);
    else if (step == 1 && run.taps == 1)
      run_of<1, 1>(r, run);
    else if (step == 1 && run.taps == 2)
      run_of<2, 1>(r, run);
    else if (step == 1 && run.taps == 4)
      run_of<4, 1>(r, run);
    else
      run_of_any(r, run);
  }
}

// Source column kJ of a block meets the gradients whose taps reach it. A tap takes the columns in
// ascending order, so blocks of any size give the same bits.
template <int kStep, int kJ, class D, class V, size_t kTaps, size_t kCols>
HWY_INLINE void meet_gradients(D d, const float* HWY_RESTRICT x, int64_t pixel,
                               const V (&grad)[kCols], V (&acc)[kTaps]) {
  constexpr int kLast = (static_cast<int>(kCols) - 1) * kStep + static_cast<int>(kTaps) - 1;
  const V value = hn::LoadU(d, x);
  for (int o = 0; o < static_cast<int>(kCols); ++o)
    if (kJ >= o * kStep && kJ < o * kStep + static_cast<int>(kTaps))
      acc[kJ - o * kStep] = hn::MulAdd(value, grad[o], acc[kJ - o * kStep]);
  if constexpr (kJ < kLast) meet_gradients<kStep, kJ + 1>(d, x + pixel, pixel, grad, acc);
}

// Columns of a run with all taps, from `first` on: as many as possible kCols at a time, then half.
template <int kStep, int kCols, class D, class V, size_t kRows, size_t kTaps>
HWY_INLINE void full_columns(D d, const DepthwiseGradRow& r, const float* const (&x)[kRows],
                             const float* HWY_RESTRICT grad, int64_t first, int64_t count,
                             V (&acc)[kRows][kTaps]) {
  for (; first + kCols <= count; first += kCols) {
    V g[kCols];
    for (int o = 0; o < kCols; ++o) g[o] = hn::LoadU(d, grad + (first + o) * r.grad_pixel);
    for (size_t i = 0; i < kRows; ++i)
      meet_gradients<kStep, 0>(d, x[i] + first * kStep * r.src_pixel, r.src_pixel, g, acc[i]);
  }
  if constexpr (kCols > 1)
    if (first < count) full_columns<kStep, kCols / 2>(d, r, x, grad, first, count, acc);
}

// A row of gradients meets kRows source rows, from `first` on, while the taps of a vector of
// channels stay in registers.
template <int kTaps, int kStep, int kRows, class D>
HWY_INLINE void grad_rows(D d, const DepthwiseGradRow& r, int64_t first, int64_t c) {
  using V = hn::Vec<D>;
  float* HWY_RESTRICT sums = r.sums + first * r.sums_row + c;
  V acc[kRows][kTaps];
  for (int i = 0; i < kRows; ++i)
    for (int t = 0; t < kTaps; ++t)
      acc[i][t] = hn::LoadU(d, sums + i * r.sums_row + t * r.sums_tap);
  for (size_t k = 0; k < r.run_count; ++k) {
    const ColumnRun run = r.runs[k];
    const float* grad = r.grad + run.dst * r.grad_pixel + c;
    const float* x[kRows];
    for (int i = 0; i < kRows; ++i) x[i] = r.src[first + i] + (run.src - run.k) * r.src_pixel + c;
    if (run.taps == kTaps) {
      full_columns<kStep, kGradColumns>(d, r, x, grad, 0, run.count, acc);
      continue;
    }
    for (int64_t o = 0; o < run.count; ++o) {
      const V g = hn::LoadU(d, grad + o * r.grad_pixel);
      for (int t = 0; t < kTaps; ++t) {
        if (t < run.k || t >= run.k + run.taps) continue;
        for (int i = 0; i < kRows; ++i)
          acc[i][t] = hn::MulAdd(hn::LoadU(d, x[i] + (o * kStep + t) * r.src_pixel), g, acc[i][t]);
      }
    }
  }
  for (int i = 0; i < kRows; ++i)
    for (int t = 0; t < kTaps; ++t)
      hn::StoreU(acc[i][t], d, sums + i * r.sums_row + t * r.sums_tap);
}

template <int kTaps, int kStep>
void grad_row_of(const DepthwiseGradRow& row) {
  constexpr int kRows = kTaps == 3 ? 3 : 2;
  const DepthwiseGradRow r = row;
  for_channels(r.channels, [=](auto d, int64_t c) TRI_LANES {
    int64_t i = 0;
    for (; i + kRows <= r.src_count; i += kRows) grad_rows<kTaps, kStep, kRows>(d, r, i, c);
    for (; i < r.src_count; ++i) grad_rows<kTaps, kStep, 1>(d, r, i, c);
  });
}

void grad_run_of_any(const DepthwiseGradRow r, const ColumnRun run) {
  for (int64_t row = 0; row < r.src_count; ++row) {
    for (int64_t t = 0; t < run.taps; ++t) {
      float* HWY_RESTRICT sum = r.sums + row * r.sums_row + (run.k + t) * r.sums_tap;
      for_channels(r.channels, [=](auto d, int64_t c) TRI_LANES {
        auto acc = hn::LoadU(d, sum + c);
        for (int64_t i = 0; i < run.count; ++i) {
          const auto g = hn::LoadU(d, r.grad + (run.dst + i) * r.grad_pixel + c);
          const int64_t column = run.src + i * r.src_step + t;
          acc = hn::MulAdd(hn::LoadU(d, r.src[row] + column * r.src_pixel + c), g, acc);
        }
        hn::StoreU(acc, d, sum + c);
      });
    }
  }
}

void depthwise_grad_row(const DepthwiseGradRow& r) {
  int64_t most = 0, taps = 0;  // of any column; of a window inside the map, if there is one
  for (size_t i = 0; i < r.run_count; ++i) {
    most = HWY_MAX(most, r.runs[i].k + r.runs[i].taps);
    taps = HWY_MAX(taps, r.runs[i].taps);
  }
  if (taps < most) taps = 0;
  if (taps == 3 && r.src_step == 1) return grad_row_of<3, 1>(r);
  if (taps == 3 && r.src_step == 2) return grad_row_of<3, 2>(r);
  if (taps == 5 && r.src_step == 1) return grad_row_of<5, 1>(r);
  if (taps == 5 && r.src_step == 2) return grad_row_of<5, 2>(r);
  for (size_t i = 0; i < r.run_count; ++i) grad_run_of_any(r, r.runs[i]);
}

}  // namespace
}  // namespace tri::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tri::ops {
HWY_EXPORT(depthwise_row);
HWY_EXPORT(depthwise_grad_row);

void depthwise_row(const DepthwiseRow& row) noexcept { HWY_DYNAMIC_DISPATCH(depthwise_row)(row); }
void depthwise_grad_row(const DepthwiseGradRow& row) noexcept {
  HWY_DYNAMIC_DISPATCH(depthwise_grad_row)(row);
}
}  // namespace tri::ops
#endif  // HWY_ONCE
