#pragma once
// Room: ops. The registers that hold blocks (Note [Blocks] in block_kernel.h), which AMX calls
// tiles, and their instructions. Those are written as assembly: gcc's intrinsics do not say that
// they read and write memory.
#include <cstdint>
#include <cstring>

#include "hwy/base.h"
#include "ops/conv2d/block_kernel.h"
#include "simd/target.h"

#if HWY_ARCH_X86
#include <immintrin.h>

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
namespace tri::ops {

// The same in memory, where the machine has none (simd::imitates_blocks()).
class ImitatedTiles {
 public:
  static void zero(int tile) { std::memset(rows_[tile], 0, sizeof(rows_[tile])); }
  static void load(int tile, const void* from, int64_t row_bytes) {
    for (int64_t r = 0; r < kBlockUnits; ++r)
      std::memcpy(rows_[tile][r], static_cast<const std::byte*>(from) + r * row_bytes, kRowBytes);
  }
  static void store(int tile, void* to, int64_t row_bytes) {
    for (int64_t r = 0; r < kBlockUnits; ++r)
      std::memcpy(static_cast<std::byte*>(to) + r * row_bytes, rows_[tile][r], kRowBytes);
  }
  // Subnormal numbers are zeros on both sides, whatever the thread's own mode is.
  static void multiply_add(int sums, int rows, int panels) {
    constexpr unsigned kZeroSubnormals = 0x8040;
    const unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | kZeroSubnormals);
    for (int64_t r = 0; r < kBlockUnits; ++r) {
      __m512 first = _mm512_setzero_ps(), second = _mm512_setzero_ps();
      for (int64_t k = 0; k < kBlockUnits; ++k) {
        const __m512i unit = _mm512_set1_epi32(static_cast<int>(rows_[rows][r][k]));
        const __m512i panel = _mm512_load_si512(rows_[panels][k]);
        first = _mm512_fmadd_ps(low(unit), low(panel), first);
        second = _mm512_fmadd_ps(high(unit), high(panel), second);
      }
      float* const to = reinterpret_cast<float*>(rows_[sums][r]);
      _mm512_store_ps(to, _mm512_add_ps(_mm512_load_ps(to), _mm512_add_ps(first, second)));
    }
    _mm_setcsr(mode);
  }

 private:
  static constexpr size_t kRowBytes = 64;

  static __m512 low(__m512i units) { return _mm512_castsi512_ps(_mm512_slli_epi32(units, 16)); }
  static __m512 high(__m512i units) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(units, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }

  alignas(64) inline static thread_local uint32_t rows_[8][kBlockUnits][kBlockUnits];
};

// Eight tiles of 16 rows of 64 bytes: four of sums, two of rows, two of panels.
class Tiles {
 public:
  Tiles() {
    if (simd::imitates_blocks()) return;
    alignas(64) static constexpr struct {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } kConfiguration;
    asm volatile("ldtilecfg %0" ::"m"(kConfiguration));
  }
  // What tiles hold would be saved with every switch of threads.
  ~Tiles() {
    if (!simd::imitates_blocks()) asm volatile("tilerelease" ::);
  }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  template <int kTile>
  HWY_INLINE static void zero() {
    if (simd::imitates_blocks()) return ImitatedTiles::zero(kTile);
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  template <int kTile>
  HWY_INLINE static void load(const void* from, int64_t row_bytes) {
    if (simd::imitates_blocks()) return ImitatedTiles::load(kTile, from, row_bytes);
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row_bytes), "i"(kTile)
                 : "memory");
  }
  template <int kTile>
  HWY_INLINE static void store(void* to, int64_t row_bytes) {
    if (simd::imitates_blocks()) return ImitatedTiles::store(kTile, to, row_bytes);
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(row_bytes), "i"(kTile) : "memory");
  }
  template <int kSums, int kRows, int kPanels>
  HWY_INLINE static void multiply_add() {
    if (simd::imitates_blocks()) return ImitatedTiles::multiply_add(kSums, kRows, kPanels);
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kSums), "i"(kRows), "i"(kPanels));
  }
};

}  // namespace tri::ops
HWY_POP_ATTRIBUTES
#endif  // HWY_ARCH_X86
