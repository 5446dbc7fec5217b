// ops/conv2d/pair_simd.cpp; contract in pair_kernel.h. Never throws, allocates or logs. Written
// with intrinsics: Highway 1.0 has no products of bf16. Called on that target only.
#include <type_traits>

#include "hwy/base.h"
#include "ops/conv2d/block_kernel.h"
#include "ops/conv2d/pair_kernel.h"
#include "ops/conv2d/pair_results-inl.h"
#include "ops/conv2d/pair_units-inl.h"
#include "simd/target.h"

#if HWY_ARCH_X86
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
namespace tri::ops {
namespace {

// Eight rows have a register for each of their addresses; with two panels 16 chains hide the
// latency of a product.
constexpr int kPairRows = 8;
constexpr int kOuterRows = kAvx512OuterRows;

HWY_INLINE __m512 multiply_add(__m512 a, __m512 b, __m512 sum) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

template <int kCount, int kPanels, class Results>
HWY_INLINE void pair_block(const PanelTile& t, const Results results, int64_t panel_units,
                           const RowRef* HWY_RESTRICT rows, int32_t seg_begin, int32_t seg_end) {
  __m512 acc[kCount][kPanels];
  for (int v = 0; v < kPanels; ++v) {
    const __m512 start =
        t.bias == nullptr ? _mm512_setzero_ps() : _mm512_loadu_ps(t.bias + v * kPanel);
    for (int r = 0; r < kCount; ++r) acc[r][v] = start;
  }
  for (int32_t s = seg_begin; s < seg_end; ++s) {
    const Segment seg = t.segments[s];
    const float* HWY_RESTRICT w = t.panel + static_cast<int64_t>(seg.w) * kPanel;
    const float* x[kCount];
    for (int r = 0; r < kCount; ++r) x[r] = t.x + rows[r].x + seg.x;
    for (int32_t k = 0; k < seg.k; ++k) {
      __m512 weights[kPanels];
      for (int v = 0; v < kPanels; ++v) weights[v] = _mm512_loadu_ps(w + v * panel_units);
      w += kPanel;
      for (int r = 0; r < kCount; ++r) {
        const __m512 value = _mm512_set1_ps(x[r][k]);
        for (int v = 0; v < kPanels; ++v) acc[r][v] = multiply_add(value, weights[v], acc[r][v]);
      }
    }
  }
  for (int r = 0; r < kCount; ++r) results.store(acc[r], rows[r].out);
}

template <int kCount, int kPanels, class Results>
HWY_INLINE void pair_rest(const PanelTile& t, const Results results, int64_t panel_units,
                          const RowRef* rows, int32_t left, int32_t seg_begin, int32_t seg_end) {
  if constexpr (kCount > 0) {
    if (left == kCount)
      return pair_block<kCount, kPanels>(t, results, panel_units, rows, seg_begin, seg_end);
    pair_rest<kCount - 1, kPanels>(t, results, panel_units, rows, left, seg_begin, seg_end);
  }
}

template <int kPanels, class Results>
void pair_panels(const PanelTile& t, const Results results, int64_t panel_units) {
  for (size_t c = 0; c < t.class_count; ++c) {
    const RowClass& rc = t.classes[c];
    int32_t row = rc.row_begin;
    for (; row + kPairRows <= rc.row_end; row += kPairRows)
      pair_block<kPairRows, kPanels>(t, results, panel_units, t.rows + row, rc.segment_begin,
                                     rc.segment_end);
    pair_rest<kPairRows - 1, kPanels>(t, results, panel_units, t.rows + row, rc.row_end - row,
                                      rc.segment_begin, rc.segment_end);
  }
}

template <class Results>
void pair_results(const PanelTile& t, const Results results, int64_t panels, int64_t panel_units) {
  if (panels == 2)
    pair_panels<2>(t, results, panel_units);
  else
    pair_panels<1>(t, results, panel_units);
}

// One panel of x and kPanels of g.
template <int kPanels>
HWY_INLINE void outer_block(const float* HWY_RESTRICT x, int64_t x_step,
                            const float* HWY_RESTRICT g, int64_t g_step, int64_t g_stride,
                            const Run* runs, size_t run_count, float* HWY_RESTRICT sums,
                            int64_t stride) {
  __m512 acc[kOuterRows][kPanels];
  for (int r = 0; r < kOuterRows; ++r)
    for (int v = 0; v < kPanels; ++v) acc[r][v] = _mm512_loadu_ps(sums + v * stride + r * kPanel);
  for (size_t i = 0; i < run_count; ++i) {
    const Run run = runs[i];
    const float* HWY_RESTRICT xp = x + static_cast<int64_t>(run.x) * x_step;
    const float* HWY_RESTRICT gp = g + static_cast<int64_t>(run.g) * g_step;
    for (int32_t p = 0; p < run.length; ++p) {
      __m512 grads[kPanels];
      for (int v = 0; v < kPanels; ++v) grads[v] = _mm512_loadu_ps(gp + v * g_stride);
      for (int r = 0; r < kOuterRows; ++r) {
        const __m512 value = _mm512_set1_ps(xp[r]);
        for (int v = 0; v < kPanels; ++v) acc[r][v] = multiply_add(value, grads[v], acc[r][v]);
      }
      xp += x_step;
      gp += g_step;
    }
  }
  for (int r = 0; r < kOuterRows; ++r)
    for (int v = 0; v < kPanels; ++v) _mm512_storeu_ps(sums + v * stride + r * kPanel, acc[r][v]);
}

HWY_INLINE __m512i widened(const uint16_t* from) {
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}

template <int kWidth, bool kBoth>
void pack_width(const float* first, const float* second, int64_t rows, int64_t src_stride,
                int64_t channels, float* dst, int64_t step, int64_t panel_stride) {
  const int64_t whole = channels / kPanel * kPanel, rest = channels - whole;
  const auto some = static_cast<__mmask16>((1u << rest) - 1);
  for (int64_t i = 0; i < rows; ++i, first += src_stride, dst += step) {
    float* to = dst;
    for (int64_t c = 0; c < whole; c += kPanel, to += kPanel / kWidth * panel_stride)
      store_units<kWidth>(units_of(_mm512_loadu_ps(first + c),
                                   kBoth ? _mm512_loadu_ps(second + c) : _mm512_setzero_ps()),
                          panel_stride, true, to);
    if (rest != 0)
      store_units<kWidth>(
          units_of(_mm512_maskz_loadu_ps(some, first + whole),
                   kBoth ? _mm512_maskz_loadu_ps(some, second + whole) : _mm512_setzero_ps()),
          panel_stride, rest > kWidth, to);
    if constexpr (kBoth) second += src_stride;
  }
}

}  // namespace

void pair_tile(const PanelTile& tile, int64_t panels, int64_t panel_units) noexcept {
  if (simd::multiplies_blocks()) return block_tile(tile, panels, panel_units);
  pair_results(tile, WideResults{tile.out}, panels, panel_units);
}

StoreCounts pair_tile_rounded(const PanelTile& tile, uint16_t* out, int64_t channels,
                              int64_t panels, int64_t panel_units) noexcept {
  if (simd::multiplies_blocks())
    return block_tile_rounded(tile, out, channels, panels, panel_units);
  StoreCounts lost;
  pair_results(tile, NarrowResults{out, channels, &lost}, panels, panel_units);
  return lost;
}

void pair_outer_tile(const OuterPanels& x, const OuterPanels& g, const Run* runs, size_t run_count,
                     float* sums, int64_t stride) noexcept {
  int64_t o = 0;
  for (; o + 2 <= g.count; o += 2)
    for (int64_t q = 0; q < x.count; ++q)
      outer_block<2>(x.first + q * x.stride, x.step, g.first + o * g.stride, g.step, g.stride, runs,
                     run_count, sums + o * stride + q * kOuterRows * kPanel, stride);
  for (int64_t q = 0; o < g.count && q < x.count; ++q)
    outer_block<1>(x.first + q * x.stride, x.step, g.first + o * g.stride, g.step, g.stride, runs,
                   run_count, sums + o * stride + q * kOuterRows * kPanel, stride);
}

void pack_pairs(const float* first, const float* second, int64_t rows, int64_t src_stride,
                int64_t channels, int64_t width, float* dst, int64_t step,
                int64_t panel_stride) noexcept {
  const auto pack = [=](auto both) {
    const auto as =
        width == kPanel ? pack_width<kPanel, both.value> : pack_width<kOuterRows, both.value>;
    as(first, second, rows, src_stride, channels, dst, step, panel_stride);
  };
  if (second == nullptr)
    pack(std::false_type());
  else
    pack(std::true_type());
}

void pair_rows(const float* src, int64_t rows, float* dst) noexcept {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  for (int64_t i = 0; i < rows; i += 2, src += 2 * kPanel, dst += kPanel) {
    const __m512i first = _mm512_loadu_si512(src);
    const __m512i second = i + 1 < rows ? _mm512_loadu_si512(src + kPanel) : _mm512_setzero_si512();
    _mm512_storeu_si512(
        dst, _mm512_or_si512(_mm512_srli_epi32(first, 16), _mm512_and_si512(second, upper)));
  }
}

void pair_rows(const uint16_t* bf16, int64_t rows, float* dst) noexcept {
  for (int64_t i = 0; i < rows; i += 2, bf16 += 2 * kPanel, dst += kPanel) {
    const __m512i second = i + 1 < rows ? widened(bf16 + kPanel) : _mm512_setzero_si512();
    _mm512_storeu_si512(dst, _mm512_or_si512(widened(bf16), _mm512_slli_epi32(second, 16)));
  }
}

// Rows r and r + 8 share a register, whose halves are turned as 8 x 8 units each: words, then pairs
// of words, then quarters.
void turn_pairs(const uint16_t* bf16, int64_t columns, float* dst) noexcept {
  const auto* rows = reinterpret_cast<const __m256i*>(bf16);
  const auto some = static_cast<__mmask16>((1u << columns) - 1);
  __m512i r[8], t[8], u[8];
  for (int i = 0; i < 8; ++i)
    r[i] = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_maskz_loadu_epi16(some, rows + i)),
                              _mm256_maskz_loadu_epi16(some, rows + i + 8), 1);
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; ++j) {
      u[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + 2 + j]);
      u[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + 2 + j]);
    }
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
  const __m512i second = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
  const int64_t units = (columns + 1) / 2;
  for (int64_t i = 0; i < 4; ++i) {
    if (i < units)
      _mm512_storeu_si512(dst + i * kPanel, _mm512_permutex2var_epi64(u[i], first, u[i + 4]));
    if (i + 4 < units)
      _mm512_storeu_si512(dst + (i + 4) * kPanel,
                          _mm512_permutex2var_epi64(u[i], second, u[i + 4]));
  }
}

void narrow(const float* src, int64_t count, uint16_t* dst) noexcept {
  int64_t i = 0;
  for (; i + 2 * kPanel <= count; i += 2 * kPanel)
    _mm512_storeu_si512(dst + i, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(
                                     _mm512_loadu_ps(src + i + kPanel), _mm512_loadu_ps(src + i))));
  for (; i < count; i += kPanel) {
    const auto some = count - i >= kPanel ? static_cast<__mmask16>(0xffff)
                                          : static_cast<__mmask16>((1u << (count - i)) - 1);
    _mm256_mask_storeu_epi16(
        dst + i, some,
        reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(some, src + i))));
  }
}

}  // namespace tri::ops
HWY_POP_ATTRIBUTES

#else  // no such target: products_for() never asks for these.
#include "base/check.h"

namespace tri::ops {
void pair_tile(const PanelTile&, int64_t, int64_t) noexcept { TRI_CHECK(false); }
StoreCounts pair_tile_rounded(const PanelTile&, uint16_t*, int64_t, int64_t, int64_t) noexcept {
  TRI_CHECK(false);
  return {};
}
void pair_outer_tile(const OuterPanels&, const OuterPanels&, const Run*, size_t, float*,
                     int64_t) noexcept {
  TRI_CHECK(false);
}
void pack_pairs(const float*, const float*, int64_t, int64_t, int64_t, int64_t, float*, int64_t,
                int64_t) noexcept {
  TRI_CHECK(false);
}
void pair_rows(const float*, int64_t, float*) noexcept { TRI_CHECK(false); }
void pair_rows(const uint16_t*, int64_t, float*) noexcept { TRI_CHECK(false); }
void turn_pairs(const uint16_t*, int64_t, float*) noexcept { TRI_CHECK(false); }
void narrow(const float*, int64_t, uint16_t*) noexcept { TRI_CHECK(false); }
}  // namespace tri::ops
#endif  // HWY_ARCH_X86
