// ops/conv2d/panel_simd.cpp; contract in panel_kernel.h. Never throws, allocates or logs.
#include "ops/conv2d/panel_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/conv2d/panel_simd.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"         // after foreach_target.h
#include "ops/window/channels-inl.h"
#include "simd/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tri::ops::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
namespace sm = tri::simd::HWY_NAMESPACE;
using numeric::Format;

// Full vectors of at most a panel: 4 lanes on SSE4 and NEON, 8 on AVX2, 16 on AVX-512.
using D = hn::CappedTag<float, kPanel>;
using V = hn::Vec<D>;
constexpr D kD;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(kD));
constexpr int kVectors = kPanel / kLanes;
// Accumulators are rows x vectors; one weight register per vector and one broadcast stay free.
// Two FMA pipes of latency 4 want at least 8 chains in flight.
constexpr int kRows = HWY_TARGET == HWY_AVX2 ? 6
                      : kLanes == 16         ? kAvx512OuterRows
                      : HWY_ARCH_X86         ? 2
                                             : 4;
// See Note [Panels together]. Rows that are read where they lie need an address each; of more than
// eight AVX-512 would keep some in memory.
constexpr int kTogether = kLanes == 16 ? 4 : 1, kOuterTogether = kLanes == 16 ? 3 : 1;
constexpr int rows_of(int panels) { return panels == 4 ? 6 : kRows; }
// So many rows of a panel ahead: the way from L2, and a bit.
constexpr int kAhead = 16;

template <int kPanels>
HWY_INLINE void fetch_ahead(const float* from, int64_t stride) {
  if constexpr (kLanes == 16)
    for (int q = 0; q < kPanels; ++q) hwy::Prefetch(from + q * stride);
}

template <int kCount, int kPanels>
HWY_INLINE void panel_block(const PanelTile& t, int64_t stride, const RowRef* HWY_RESTRICT rows,
                            int32_t seg_begin, int32_t seg_end) {
  constexpr int kAll = kPanels * kVectors;
  V acc[kCount][kAll];
  for (int v = 0; v < kAll; ++v) {
    const V start = t.bias == nullptr ? hn::Zero(kD) : hn::LoadU(kD, t.bias + v * kLanes);
    for (int r = 0; r < kCount; ++r) acc[r][v] = start;
  }
  for (int32_t s = seg_begin; s < seg_end; ++s) {
    const Segment seg = t.segments[s];
    const float* HWY_RESTRICT w = t.panel + static_cast<int64_t>(seg.w) * kPanel;
    const float* x[kCount];
    for (int r = 0; r < kCount; ++r) x[r] = t.x + rows[r].x + seg.x;
    for (int32_t k = 0; k < seg.k; ++k) {
      V weights[kAll];
      for (int v = 0; v < kAll; ++v)
        weights[v] = hn::LoadU(kD, w + v / kVectors * stride + v % kVectors * kLanes);
      fetch_ahead<kPanels>(w + kAhead * kPanel, stride);
      w += kPanel;
      for (int r = 0; r < kCount; ++r) {
        const V value = hn::Set(kD, x[r][k]);
        for (int v = 0; v < kAll; ++v) acc[r][v] = hn::MulAdd(value, weights[v], acc[r][v]);
      }
    }
  }
  for (int r = 0; r < kCount; ++r)
    for (int v = 0; v < kAll; ++v) hn::StoreU(acc[r][v], kD, t.out + rows[r].out + v * kLanes);
}

// The rows that are left when a block's do not divide a class.
template <int kCount, int kPanels>
HWY_INLINE void panel_rest(const PanelTile& t, int64_t stride, const RowRef* rows, int32_t left,
                           int32_t seg_begin, int32_t seg_end) {
  if constexpr (kCount > 0) {
    if (left == kCount) return panel_block<kCount, kPanels>(t, stride, rows, seg_begin, seg_end);
    panel_rest<kCount - 1, kPanels>(t, stride, rows, left, seg_begin, seg_end);
  }
}

template <int kPanels>
void panel_rows(const PanelTile& t, int64_t stride) {
  constexpr int kCount = rows_of(kPanels);
  for (size_t c = 0; c < t.class_count; ++c) {
    const RowClass& rc = t.classes[c];
    int32_t row = rc.row_begin;
    for (; row + kCount <= rc.row_end; row += kCount)
      panel_block<kCount, kPanels>(t, stride, t.rows + row, rc.segment_begin, rc.segment_end);
    panel_rest<kCount - 1, kPanels>(t, stride, t.rows + row, rc.row_end - row, rc.segment_begin,
                                    rc.segment_end);
  }
}

void panel_tile(const PanelTile& t, int64_t panels, int64_t stride) {
  if constexpr (kTogether > 1) {
    if (panels == 4) return panel_rows<4>(t, stride);
    if (panels == 3) return panel_rows<3>(t, stride);
    if (panels == 2) return panel_rows<2>(t, stride);
  }
  panel_rows<1>(t, stride);
}

int64_t most_panels() { return kTogether; }
int64_t outer_rows() { return kRows; }
int64_t most_outer_panels() { return kOuterTogether; }

// One panel of x and kPanels of g.
template <int kPanels>
HWY_INLINE void outer_block(const float* HWY_RESTRICT x, int64_t x_step,
                            const float* HWY_RESTRICT g, int64_t g_step, int64_t g_stride,
                            const Run* runs, size_t run_count, float* HWY_RESTRICT sums,
                            int64_t stride) {
  constexpr int kAll = kPanels * kVectors;
  const auto at = [=](int r, int v) {
    return sums + v / kVectors * stride + r * kPanel + v % kVectors * kLanes;
  };
  V acc[kRows][kAll];
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kAll; ++v) acc[r][v] = hn::LoadU(kD, at(r, v));
  for (size_t i = 0; i < run_count; ++i) {
    const Run run = runs[i];
    const float* HWY_RESTRICT xp = x + static_cast<int64_t>(run.x) * x_step;
    const float* HWY_RESTRICT gp = g + static_cast<int64_t>(run.g) * g_step;
    for (int32_t p = 0; p < run.length; ++p) {
      V grads[kAll];
      for (int v = 0; v < kAll; ++v)
        grads[v] = hn::LoadU(kD, gp + v / kVectors * g_stride + v % kVectors * kLanes);
      fetch_ahead<1>(xp + kAhead * x_step, 0);
      fetch_ahead<kPanels>(gp + kAhead * g_step, g_stride);
      for (int r = 0; r < kRows; ++r) {
        const V value = hn::Set(kD, xp[r]);
        for (int v = 0; v < kAll; ++v) acc[r][v] = hn::MulAdd(value, grads[v], acc[r][v]);
      }
      xp += x_step;
      gp += g_step;
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kAll; ++v) hn::StoreU(acc[r][v], kD, at(r, v));
}

template <int kPanels>
void outer_panels(const OuterPanels& x, const float* g, int64_t g_step, int64_t g_stride,
                  const Run* runs, size_t run_count, float* sums, int64_t stride) {
  for (int64_t q = 0; q < x.count; ++q)
    outer_block<kPanels>(x.first + q * x.stride, x.step, g, g_step, g_stride, runs, run_count,
                         sums + q * kRows * kPanel, stride);
}

void outer_tile(const OuterPanels& x, const OuterPanels& g, const Run* runs, size_t run_count,
                float* sums, int64_t stride) {
  int64_t groups = PanelGroups{g.count, kOuterTogether}.count(), panels = 0;
  for (int64_t o = 0; o < g.count; o += panels, --groups) {
    panels = groups == 1 ? g.count - o : (g.count - o) / groups;
    const auto some = [&](auto tile) {
      tile(x, g.first + o * g.stride, g.step, g.stride, runs, run_count, sums + o * stride, stride);
    };
    if constexpr (kOuterTogether > 1) {
      if (panels == 3) some(outer_panels<3>);
      if (panels == 2) some(outer_panels<2>);
    }
    if (panels == 1) some(outer_panels<1>);
  }
}

// Copies kWidth floats in vectors, the last of which may overlap the one before it.
template <int kWidth>
HWY_INLINE void copy_few(const float* HWY_RESTRICT from, float* HWY_RESTRICT to) {
  const hn::CappedTag<float, kWidth> d;
  constexpr int kStep = static_cast<int>(hn::MaxLanes(d));
  for (int i = 0; i + kStep <= kWidth; i += kStep) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  if constexpr (kWidth % kStep != 0)
    hn::StoreU(hn::LoadU(d, from + kWidth - kStep), d, to + kWidth - kStep);
}

template <int kWidth>
void pack_width(const float* HWY_RESTRICT src, int64_t rows, int64_t src_stride, int64_t channels,
                float* HWY_RESTRICT dst, int64_t step, int64_t panel_stride) {
  const int64_t whole = channels / kWidth, rest = channels % kWidth;
  for (int64_t i = 0; i < rows; ++i) {
    const float* from = src + i * src_stride;
    float* to = dst + i * step;
    for (int64_t panel = 0; panel < whole; ++panel)
      copy_few<kWidth>(from + panel * kWidth, to + panel * panel_stride);
    if (rest == 0) continue;
    to += whole * panel_stride;
    from += whole * kWidth;
    int64_t c = 0;
    for (; c + 2 <= rest; c += 2) copy_few<2>(from + c, to + c);
    if (c < rest) to[c] = from[c];
    for (c = rest; c < kWidth; ++c) to[c] = 0.0f;
  }
}

void pack_rows(const float* src, int64_t rows, int64_t src_stride, int64_t channels, int64_t width,
               float* dst, int64_t step, int64_t panel_stride) {
  if (width == kPanel)
    pack_width<kPanel>(src, rows, src_stride, channels, dst, step, panel_stride);
  else
    pack_width<kRows>(src, rows, src_stride, channels, dst, step, panel_stride);
}

// One block of four codes from each of several rows, `stride` codes apart.
template <class DC>
HWY_INLINE hn::Vec<DC> load_blocks(DC dc, const hn::TFromD<DC>* HWY_RESTRICT from, int64_t stride) {
  if constexpr (hn::MaxLanes(dc) == 4) {
    return hn::LoadU(dc, from);
  } else {
    const hn::Half<DC> half;
    const auto upper = static_cast<int64_t>(hn::MaxLanes(half)) * stride;  // as many rows on
    return hn::Combine(dc, load_blocks(half, from + upper, stride),
                       load_blocks(half, from, stride));
  }
}

// 4 x 4 transposes, as many side by side as a vector has blocks of four: rows r, r + 4, ... of four
// columns become the columns' lanes.
template <Format kFormat>
void transpose_as(const void* HWY_RESTRICT src, int64_t src_stride, float* HWY_RESTRICT dst,
                  int64_t dst_stride) {
  const hn::Repartition<double, D> d2;
  const hn::Rebind<sm::Code<kFormat>, D> dc;
  const auto* HWY_RESTRICT codes = static_cast<const sm::Code<kFormat>*>(src);
  const auto load = [=](int64_t r, int64_t c) TRI_LANES {
    return sm::codes_as_f32<kFormat>(kD, load_blocks(dc, codes + r * src_stride + c, src_stride));
  };
  for (int64_t r = 0; r < kPanel; r += kLanes) {
    for (int64_t c = 0; c < kPanel; c += 4) {
      const auto a = load(r, c), b = load(r + 1, c), e = load(r + 2, c), f = load(r + 3, c);
      const auto ab_lo = hn::BitCast(d2, hn::InterleaveLower(kD, a, b));
      const auto ab_hi = hn::BitCast(d2, hn::InterleaveUpper(kD, a, b));
      const auto ef_lo = hn::BitCast(d2, hn::InterleaveLower(kD, e, f));
      const auto ef_hi = hn::BitCast(d2, hn::InterleaveUpper(kD, e, f));
      float* HWY_RESTRICT to = dst + c * dst_stride + r;
      hn::StoreU(hn::BitCast(kD, hn::InterleaveLower(d2, ab_lo, ef_lo)), kD, to);
      hn::StoreU(hn::BitCast(kD, hn::InterleaveUpper(d2, ab_lo, ef_lo)), kD, to + dst_stride);
      hn::StoreU(hn::BitCast(kD, hn::InterleaveLower(d2, ab_hi, ef_hi)), kD, to + 2 * dst_stride);
      hn::StoreU(hn::BitCast(kD, hn::InterleaveUpper(d2, ab_hi, ef_hi)), kD, to + 3 * dst_stride);
    }
  }
}

void transpose_any(Format format, const void* src, int64_t src_stride, float* dst,
                   int64_t dst_stride) {
  if (format == Format::kBf16)
    transpose_as<Format::kBf16>(src, src_stride, dst, dst_stride);
  else if (format == Format::kF16)
    transpose_as<Format::kF16>(src, src_stride, dst, dst_stride);
  else
    transpose_as<Format::kF32>(src, src_stride, dst, dst_stride);
}

}  // namespace
}  // namespace tri::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tri::ops {
HWY_EXPORT(panel_tile);
HWY_EXPORT(most_panels);
HWY_EXPORT(outer_rows);
HWY_EXPORT(most_outer_panels);
HWY_EXPORT(outer_tile);
HWY_EXPORT(pack_rows);
HWY_EXPORT(transpose_any);

int64_t most_panels() noexcept { return HWY_DYNAMIC_DISPATCH(most_panels)(); }
void panel_tile(const PanelTile& tile, int64_t panels, int64_t panel_stride) noexcept {
  HWY_DYNAMIC_DISPATCH(panel_tile)(tile, panels, panel_stride);
}
int64_t outer_rows() noexcept { return HWY_DYNAMIC_DISPATCH(outer_rows)(); }
int64_t most_outer_panels() noexcept { return HWY_DYNAMIC_DISPATCH(most_outer_panels)(); }
void outer_tile(const OuterPanels& x, const OuterPanels& g, const Run* runs, size_t run_count,
                float* sums, int64_t stride) noexcept {
  HWY_DYNAMIC_DISPATCH(outer_tile)(x, g, runs, run_count, sums, stride);
}
void pack_rows(const float* src, int64_t rows, int64_t src_stride, int64_t channels, int64_t width,
               float* dst, int64_t step, int64_t panel_stride) noexcept {
  HWY_DYNAMIC_DISPATCH(pack_rows)
  (src, rows, src_stride, channels, width, dst, step, panel_stride);
}
void transpose_block(numeric::Format format, const void* src, int64_t src_stride, float* dst,
                     int64_t dst_stride) noexcept {
  HWY_DYNAMIC_DISPATCH(transpose_any)(format, src, src_stride, dst, dst_stride);
}
void transpose_block(const float* src, int64_t src_stride, float* dst,
                     int64_t dst_stride) noexcept {
  transpose_block(numeric::Format::kF32, src, src_stride, dst, dst_stride);
}
}  // namespace tri::ops
#endif  // HWY_ONCE
