// ops/conv2d/winograd_pairs_simd.cpp; contract in winograd_kernel.h. Never throws, allocates or
// logs. Written with intrinsics, as pair_simd.cpp is, and called on that target only.
#include <algorithm>
#include <type_traits>

#include "hwy/base.h"
#include "ops/conv2d/pair_units-inl.h"
#include "ops/conv2d/winograd_kernel.h"

#if HWY_ARCH_X86
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
namespace tri::ops {
namespace {

// G along one axis, as in winograd_simd.cpp.
HWY_INLINE __m512 filter_axis(int row, __m512 g0, __m512 g1, __m512 g2) {
  if (row == 0) return g0;
  if (row == 3) return g2;
  const __m512 ends = _mm512_add_ps(g0, g2);
  return _mm512_mul_ps(_mm512_set1_ps(0.5f),
                       row == 1 ? _mm512_add_ps(ends, g1) : _mm512_sub_ps(ends, g1));
}

// One line of G g G^T for 16 channels of dst.
HWY_INLINE void filter_line(const float* tap, int64_t floats, int y, __m512* line) {
  __m512 w[3];
  for (int x = 0; x < 3; ++x, tap += floats)
    w[x] = filter_axis(y, _mm512_loadu_ps(tap), _mm512_loadu_ps(tap + 3 * floats),
                       _mm512_loadu_ps(tap + 6 * floats));
  for (int x = 0; x < 4; ++x) line[x] = filter_axis(x, w[0], w[1], w[2]);
}

// B^T along one axis: row r of it takes the sources kFirst[r] and kSecond[r].
constexpr int kFirst[4] = {0, 1, 2, 1}, kSecond[4] = {2, 2, 1, 3};

HWY_INLINE __m512 source_axis(int row, __m512 first, __m512 second) {
  return row == 1 ? _mm512_add_ps(first, second) : _mm512_sub_ps(first, second);
}

HWY_INLINE __mmask16 first_lanes(int64_t count) {
  return static_cast<__mmask16>((1u << std::clamp<int64_t>(count, 0, kPanel)) - 1);
}

struct All {
  HWY_INLINE __m512 operator()(const float* from) const { return _mm512_loadu_ps(from); }
};
struct Some {
  HWY_INLINE __m512 operator()(const float* from) const {
    return _mm512_maskz_loadu_ps(lanes, from);
  }
  __mmask16 lanes;
};

// A along one axis.
HWY_INLINE __m512 gradient_axis(int row, __m512 g0, __m512 g1) {
  if (row == 0) return g0;
  if (row == 3) return _mm512_xor_ps(g1, _mm512_set1_ps(-0.0f));
  return row == 1 ? _mm512_add_ps(g0, g1) : _mm512_sub_ps(g0, g1);
}

// One line of B^T d B, or of A g A^T, for 16 channels of a patch that load(address) fetches.
struct SourceLine {
  template <class Load>
  HWY_INLINE void operator()(const float* pixel, int64_t line, int64_t channels, int y, Load load,
                             __m512* out) const {
    __m512 w[4];
    for (int x = 0; x < 4; ++x, pixel += channels)
      w[x] = source_axis(y, load(pixel + kFirst[y] * line), load(pixel + kSecond[y] * line));
    for (int x = 0; x < 4; ++x) out[x] = source_axis(x, w[kFirst[x]], w[kSecond[x]]);
  }
};
struct GradientLine {
  template <class Load>
  HWY_INLINE void operator()(const float* pixel, int64_t line, int64_t channels, int y, Load load,
                             __m512* out) const {
    const __m512 left = gradient_axis(y, load(pixel), load(pixel + line));
    const __m512 right = gradient_axis(y, load(pixel + channels), load(pixel + line + channels));
    for (int x = 0; x < 4; ++x) out[x] = gradient_axis(x, left, right);
  }
};

// 16 channels of two neighbouring patches, or of the last one, to where they begin in the first
// frequency.
template <int kWidth, bool kBoth, class Line, class Load>
HWY_INLINE void pair_patches(const float* src, int64_t line, int64_t channels, Load load,
                             bool second_panel, const WinogradPanels& to, float* dst) {
  for (int y = 0; y < 4; ++y) {
    __m512 first[4], second[4] = {};
    Line()(src, line, channels, y, load, first);
    if constexpr (kBoth) Line()(src + 2 * channels, line, channels, y, load, second);
    for (int x = 0; x < 4; ++x)
      store_units<kWidth>(units_of(first[x], second[x]), to.panel, second_panel,
                          dst + (4 * y + x) * to.frequency);
  }
}

template <int kWidth, class Line>
void panels_of_width(const float* src, int64_t line, int64_t channels, int64_t tiles,
                     const WinogradPanels& to) {
  const int64_t whole = channels / kPanel * kPanel, rest = channels - whole;
  const Some some{first_lanes(rest)};
  float* dst = to.first;
  const auto put = [&](auto both) __attribute__((always_inline)) {
    float* at = dst;
    for (int64_t c = 0; c < whole; c += kPanel, at += kPanel / kWidth * to.panel)
      pair_patches<kWidth, both.value, Line>(src + c, line, channels, All(), true, to, at);
    if (rest != 0)
      pair_patches<kWidth, both.value, Line>(src + whole, line, channels, some, rest > kWidth, to,
                                             at);
  };
  for (int64_t tile = 0; tile + 1 < tiles; tile += 2, src += 4 * channels, dst += to.step)
    put(std::true_type());
  if (tiles % 2 != 0) put(std::false_type());
}

template <class Line>
void panels_of_patches(const float* src, int64_t line, int64_t channels, int64_t tiles,
                       const WinogradPanels& to) {
  const auto as =
      to.width == kPanel ? panels_of_width<kPanel, Line> : panels_of_width<kAvx512OuterRows, Line>;
  as(src, line, channels, tiles, to);
}

}  // namespace

void winograd_weight_pairs(const float* panel, int64_t channels, float* dst) noexcept {
  const int64_t floats = channels * kPanel, pairs = (channels + 1) / 2;
  for (int64_t k = 0; k < pairs; ++k, panel += 2 * kPanel, dst += kPanel) {
    for (int y = 0; y < 4; ++y) {
      __m512 first[4], second[4] = {};
      filter_line(panel, floats, y, first);
      if (2 * k + 1 < channels) filter_line(panel + kPanel, floats, y, second);
      for (int x = 0; x < 4; ++x)
        _mm512_storeu_si512(dst + (4 * y + x) * pairs * kPanel, units_of(first[x], second[x]));
    }
  }
}

void winograd_source_pairs(const float* src, int64_t line, int64_t channels, int64_t tiles,
                           float* dst, int64_t stride) noexcept {
  constexpr int64_t kBoth = 2 * kPanel;
  const int64_t pairs = (channels + 1) / 2, whole = channels / kBoth * kBoth;
  const Some some{first_lanes(channels - whole)}, more{first_lanes(channels - whole - kPanel)};
  const __mmask16 units = first_lanes(pairs - whole / 2);
  for (int64_t tile = 0; tile < tiles; ++tile, src += 2 * channels, dst += pairs) {
    for (int y = 0; y < 4; ++y) {
      float* const to = dst + 4 * y * stride;
      __m512 first[4], second[4];
      for (int64_t c = 0; c < whole; c += kBoth) {
        SourceLine()(src + c, line, channels, y, All(), first);
        SourceLine()(src + c + kPanel, line, channels, y, All(), second);
        for (int x = 0; x < 4; ++x)
          _mm512_storeu_ps(to + x * stride + c / 2,
                           reinterpret_cast<__m512>(_mm512_cvtne2ps_pbh(second[x], first[x])));
      }
      if (whole == channels) continue;
      SourceLine()(src + whole, line, channels, y, some, first);
      SourceLine()(src + whole + kPanel, line, channels, y, more, second);
      for (int x = 0; x < 4; ++x)
        _mm512_mask_storeu_ps(to + x * stride + whole / 2, units,
                              reinterpret_cast<__m512>(_mm512_cvtne2ps_pbh(second[x], first[x])));
    }
  }
}

void winograd_source_panels(const float* src, int64_t line, int64_t channels, int64_t tiles,
                            const WinogradPanels& to) noexcept {
  panels_of_patches<SourceLine>(src, line, channels, tiles, to);
}

void winograd_gradient_panels(const float* src, int64_t line, int64_t channels, int64_t tiles,
                              const WinogradPanels& to) noexcept {
  panels_of_patches<GradientLine>(src, line, channels, tiles, to);
}

}  // namespace tri::ops
HWY_POP_ATTRIBUTES

#else  // no such target: products_for() never asks for these.
#include "base/check.h"

namespace tri::ops {
void winograd_weight_pairs(const float*, int64_t, float*) noexcept { TRI_CHECK(false); }
void winograd_source_pairs(const float*, int64_t, int64_t, int64_t, float*, int64_t) noexcept {
  TRI_CHECK(false);
}
void winograd_source_panels(const float*, int64_t, int64_t, int64_t,
                            const WinogradPanels&) noexcept {
  TRI_CHECK(false);
}
void winograd_gradient_panels(const float*, int64_t, int64_t, int64_t,
                              const WinogradPanels&) noexcept {
  TRI_CHECK(false);
}
}  // namespace tri::ops
#endif  // HWY_ARCH_X86
