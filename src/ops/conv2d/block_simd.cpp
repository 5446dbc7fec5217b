// ops/conv2d/block_simd.cpp; contract in block_kernel.h. Never throws, allocates or logs. Written
// with intrinsics, as pair_simd.cpp is, and called on that target only.
#include <algorithm>

#include "hwy/base.h"
#include "ops/conv2d/block_kernel.h"
#include "ops/conv2d/block_tiles-inl.h"
#include "ops/conv2d/pair_results-inl.h"
#include "ops/conv2d/pair_units-inl.h"

#if HWY_ARCH_X86
HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
namespace tri::ops {
namespace {

// Two tiles of rows meet two panels.
constexpr int kTileRows = 16, kRowTiles = 2, kPanelTiles = 2;
constexpr int kRows = kRowTiles * kTileRows;
constexpr int64_t kSumsStride = kPanelTiles * kPanel;
constexpr int64_t kPanelBytes = kPanel * sizeof(float);

template <int kRowTile, int kPanelTile>
constexpr int kSumTile = kRowTile* kPanelTiles + kPanelTile;
constexpr int kFirstRowTile = 4, kFirstPanelTile = 6;

// The tiles of sums in use, one by one.
template <int kRowCount, int kPanelCount, class Visit>
HWY_INLINE void for_sums(Visit visit) {
  visit.template operator()<0, 0>();
  if constexpr (kPanelCount == 2) visit.template operator()<0, 1>();
  if constexpr (kRowCount == 2) visit.template operator()<1, 0>();
  if constexpr (kRowCount == 2 && kPanelCount == 2) visit.template operator()<1, 1>();
}

template <int kRowCount, int kPanelCount>
HWY_INLINE void multiply_tiles() {
  for_sums<kRowCount, kPanelCount>([]<int kRow, int kCol>() {
    Tiles::multiply_add<kSumTile<kRow, kCol>, kFirstRowTile + kRow, kFirstPanelTile + kCol>();
  });
}

// Units of a row: where they come from and where they go among those that are multiplied.
struct Piece {
  int32_t x, at, count;
};

// Rows of panels that meet 16 units of a row.
struct Block {
  int32_t w, depth;  // how many, the others are zeros
  int32_t x;         // where these units lie in the row
};

// So many blocks of a row are gathered at a time: they stay in L2 beside the panels, and sums are
// fetched and put away seldom.
constexpr int kMostBlocks = 32;
// An odd number of lines from row to row: not all in the same sets of L1.
constexpr int64_t kGatheredStride = (kMostBlocks + 1) * kBlockUnits;

// What the next blocks of a class are made of.
class Blocks {
 public:
  explicit Blocks(const PanelTile& tile, const RowClass& of)
      : segments_(tile.segments), segment_(of.segment_begin), end_(of.segment_end) {}

  // False: there are no more.
  bool next() {
    count_ = piece_count_ = 0;
    in_place_ = true;
    while (segment_ < end_ && piece_count_ < kMostPieces) {
      const Segment& s = segments_[segment_];
      Block& last = blocks_[count_ - (count_ > 0)];
      const bool joins =
          count_ > 0 && last.w + last.depth == s.w + taken_ && last.depth < kBlockUnits;
      const int32_t at = (count_ - joins) * int32_t{kBlockUnits} + (joins ? last.depth : 0);
      const int32_t room = kMostBlocks * int32_t{kBlockUnits} - at;
      const int32_t some = std::min(room, s.k - taken_);
      if (some == 0) break;
      pieces_[piece_count_++] = {s.x + taken_, at, some};
      in_place_ &= !joins && some % kBlockUnits == 0;
      int32_t done = 0;
      if (joins) {
        done = std::min(some, int32_t{kBlockUnits} - last.depth);
        last.depth += done;
      }
      for (; done < some; done += kBlockUnits)
        blocks_[count_++] = {s.w + taken_ + done, std::min(int32_t{kBlockUnits}, some - done),
                             s.x + taken_ + done};
      taken_ += some;
      if (taken_ < s.k) break;
      taken_ = 0;
      ++segment_;
    }
    return count_ > 0;
  }
  bool more() const { return segment_ < end_; }
  int count() const { return count_; }
  const Block& operator[](int i) const { return blocks_[i]; }
  // Whether all of them are whole and lie together in a row.
  bool in_place() const { return in_place_; }

  // Copies the units of a row; what a block has no units for are zeros.
  HWY_INLINE void gather(const float* HWY_RESTRICT row, float* HWY_RESTRICT to) const {
    for (int p = 0; p < piece_count_; ++p) {
      const auto& [x, at, count] = pieces_[p];
      const float* HWY_RESTRICT from = row + x;
      float* HWY_RESTRICT piece = to + at;
      if ((at + count) % kBlockUnits != 0)  // zeros to the end of the block
        _mm512_storeu_ps(piece + count, _mm512_setzero_ps());
      int32_t i = 0;
      for (; i + kPanel <= count; i += kPanel)
        _mm512_storeu_ps(piece + i, _mm512_loadu_ps(from + i));
      if (i == count) continue;
      const auto some = static_cast<__mmask16>((1u << (count - i)) - 1);
      _mm512_mask_storeu_ps(piece + i, some, _mm512_maskz_loadu_ps(some, from + i));
    }
  }

 private:
  static constexpr int kMostPieces = 2 * kMostBlocks;

  const Segment* segments_;
  int32_t segment_, end_;
  int32_t taken_ = 0;  // of that segment
  int count_ = 0, piece_count_ = 0;
  bool in_place_ = true;
  Block blocks_[kMostBlocks];
  Piece pieces_[kMostPieces];
};

// 16 or 32 rows of units, `stride` apart: in scratch, where block follows block, or in place.
struct Rows {
  const float* first;
  int64_t stride;
  bool in_place;

  HWY_INLINE const float* of(const Block& block, int index) const {
    return first + (in_place ? block.x : index * kBlockUnits);
  }
};

// Loads the rows of a panel that belong to a block.
template <int kTile>
HWY_INLINE void load_panel(const float* panel, const Block& block, float* HWY_RESTRICT room) {
  const float* HWY_RESTRICT from = panel + int64_t{block.w} * kPanel;
  if (block.depth == kBlockUnits) return Tiles::load<kTile>(from, kPanelBytes);
  for (int32_t i = 0; i < kBlockUnits; ++i)
    _mm512_store_ps(room + i * kPanel,
                    i < block.depth ? _mm512_loadu_ps(from + i * kPanel) : _mm512_setzero_ps());
  Tiles::load<kTile>(room, kPanelBytes);
}

template <int kRowCount, int kPanelCount>
HWY_INLINE void multiply_blocks(const Rows& rows, const Blocks& blocks, const float* panel,
                                int64_t panel_units) {
  alignas(64) float first[kBlockFloats], second[kBlockFloats];
  const int64_t row_bytes = rows.stride * int64_t{sizeof(float)};
  for (int i = 0; i < blocks.count(); ++i) {
    const Block& block = blocks[i];
    const float* const at = rows.of(block, i);
    load_panel<kFirstPanelTile>(panel, block, first);
    if constexpr (kPanelCount == 2)
      load_panel<kFirstPanelTile + 1>(panel + panel_units, block, second);
    Tiles::load<kFirstRowTile>(at, row_bytes);
    if constexpr (kRowCount == 2)
      Tiles::load<kFirstRowTile + 1>(at + kTileRows * rows.stride, row_bytes);
    multiply_tiles<kRowCount, kPanelCount>();
  }
}

// How sums begin and end: at the bias or where the blocks before left them; there again or in their
// rows.
struct Turn {
  bool first, last;
  const float* bias;  // of these panels, or null
  float* sums;        // [row][panel][16]
};

template <int kRowCount, int kPanelCount, class Results>
HWY_INLINE void multiply_turn(const Turn& turn, const Rows& rows, const Blocks& blocks,
                              const float* panel, int64_t panel_units, const RowRef* refs,
                              int count, const Results& results) {
  constexpr int64_t kStrideBytes = kSumsStride * sizeof(float);
  const auto sums_of = [&](int row, int col) {
    return turn.sums + row * kTileRows * kSumsStride + col * kPanel;
  };
  for_sums<kRowCount, kPanelCount>([&]<int kRow, int kCol>() {
    if (!turn.first)
      Tiles::load<kSumTile<kRow, kCol>>(sums_of(kRow, kCol), kStrideBytes);
    else if (turn.bias != nullptr)
      Tiles::load<kSumTile<kRow, kCol>>(turn.bias + kCol * kPanel, 0);  // the same for all rows
    else
      Tiles::zero<kSumTile<kRow, kCol>>();
  });
  multiply_blocks<kRowCount, kPanelCount>(rows, blocks, panel, panel_units);
  for_sums<kRowCount, kPanelCount>([&]<int kRow, int kCol>() {
    Tiles::store<kSumTile<kRow, kCol>>(sums_of(kRow, kCol), kStrideBytes);
  });
  if (!turn.last) return;
  for (int r = 0; r < count; ++r) {
    __m512 row[kPanelCount];
    for (int v = 0; v < kPanelCount; ++v)
      row[v] = _mm512_load_ps(turn.sums + r * kSumsStride + v * kPanel);
    results.store(row, refs[r].out);
  }
}

// Up to 32 rows of a class.
template <class Results>
void multiply_rows(const PanelTile& t, const RowClass& of, const RowRef* refs, int count,
                   int64_t panels, int64_t panel_units, const Results& results) {
  alignas(64) float gathered[kRows * kGatheredStride];
  alignas(64) float sums[(kMostPanels + 1) / kPanelTiles][kRows * kSumsStride];
  const int tiles = count > kTileRows ? 2 : 1;
  const int64_t step = count > 1 ? refs[1].x - refs[0].x : 0;
  bool even = count == tiles * kTileRows && step > 0;
  for (int r = 1; even && r < count; ++r) even = refs[r].x - refs[r - 1].x == step;
  Blocks blocks(t, of);
  for (bool first = true; blocks.next() || first; first = false) {
    Rows rows{t.x + refs[0].x, step, true};
    if (!even || !blocks.in_place()) {
      rows = {gathered, kGatheredStride, false};
      for (int r = 0; r < tiles * kTileRows; ++r)  // the last one stands for those that are not
        blocks.gather(t.x + refs[std::min(r, count - 1)].x, gathered + r * kGatheredStride);
    }
    for (int64_t v = 0; v < panels; v += kPanelTiles) {
      const Turn turn{first, !blocks.more(), t.bias == nullptr ? nullptr : t.bias + v * kPanel,
                      sums[v / kPanelTiles]};
      const float* const panel = t.panel + v * panel_units;
      const auto run = [&](auto some, auto wide) {
        multiply_turn<some.value, wide.value>(turn, rows, blocks, panel, panel_units, refs, count,
                                              results.behind(v));
      };
      const std::integral_constant<int, 1> one;
      const std::integral_constant<int, 2> two;
      if (v + 1 < panels)
        tiles == 2 ? run(two, two) : run(one, two);
      else
        tiles == 2 ? run(two, one) : run(one, one);
    }
  }
}

template <class Results>
void block_results(const PanelTile& t, const Results& results, int64_t panels,
                   int64_t panel_units) {
  const Tiles tiles;
  for (size_t c = 0; c < t.class_count; ++c) {
    const RowClass& of = t.classes[c];
    for (int32_t row = of.row_begin; row < of.row_end; row += kRows)
      multiply_rows(t, of, t.rows + row, std::min(kRows, of.row_end - row), panels, panel_units,
                    results);
  }
}

template <int kRowCount, int kPanelCount>
void outer_blocks(const float* x, int64_t x_stride, const float* g, int64_t g_stride,
                  const Run* runs, size_t run_count, float* sums, int64_t stride) {
  const auto sums_of = [&](int row, int col) { return sums + col * stride + row * kBlockFloats; };
  for_sums<kRowCount, kPanelCount>([&]<int kRow, int kCol>() {
    Tiles::load<kSumTile<kRow, kCol>>(sums_of(kRow, kCol), kPanelBytes);
  });
  for (size_t i = 0; i < run_count; ++i) {
    const float* xp = x + runs[i].x * kPanel;
    const float* gp = g + runs[i].g * kPanel;
    for (int32_t p = 0; p < runs[i].length; p += kBlockUnits) {
      Tiles::load<kFirstPanelTile>(gp, kPanelBytes);
      if constexpr (kPanelCount == 2) Tiles::load<kFirstPanelTile + 1>(gp + g_stride, kPanelBytes);
      Tiles::load<kFirstRowTile>(xp, kPanelBytes);
      if constexpr (kRowCount == 2) Tiles::load<kFirstRowTile + 1>(xp + x_stride, kPanelBytes);
      multiply_tiles<kRowCount, kPanelCount>();
      xp += kBlockFloats;
      gp += kBlockFloats;
    }
  }
  for_sums<kRowCount, kPanelCount>([&]<int kRow, int kCol>() {
    Tiles::store<kSumTile<kRow, kCol>>(sums_of(kRow, kCol), kPanelBytes);
  });
}

// Columns of 16 x 16 units become rows: pairs of units, of pairs, of quarters, of halves.
HWY_INLINE void turn_units(__m512i (&r)[kBlockUnits]) {
  __m512i t[kBlockUnits];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; ++j) {
      r[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + 2 + j]);
      r[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + 2 + j]);
    }
  for (int i = 0; i < 16; i += 8)
    for (int j = 0; j < 4; ++j) {
      t[i + j] = _mm512_shuffle_i32x4(r[i + j], r[i + 4 + j], 0x88);
      t[i + 4 + j] = _mm512_shuffle_i32x4(r[i + j], r[i + 4 + j], 0xdd);
    }
  for (int j = 0; j < 8; ++j) {
    r[j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0x88);
    r[8 + j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0xdd);
  }
}

// One panel, of which `there` are channels.
HWY_INLINE void pack_panel(const float* HWY_RESTRICT src, int64_t count, int64_t stride,
                           __mmask16 there, bool turned, float* HWY_RESTRICT dst) {
  __m512i units[kBlockUnits];
  for (int64_t i = 0; i < kBlockUnits; ++i) {
    const __m512 zeros = _mm512_setzero_ps();
    const float* HWY_RESTRICT row = src + 2 * i * stride;
    const __m512 first = 2 * i < count ? _mm512_maskz_loadu_ps(there, row) : zeros;
    const __m512 second = 2 * i + 1 < count ? _mm512_maskz_loadu_ps(there, row + stride) : zeros;
    units[i] = units_of(first, second);
  }
  if (turned) turn_units(units);
  for (int64_t i = 0; i < kBlockUnits; ++i) _mm512_storeu_si512(dst + i * kPanel, units[i]);
}

}  // namespace

void block_tile(const PanelTile& tile, int64_t panels, int64_t panel_units) noexcept {
  block_results(tile, WideResults{tile.out}, panels, panel_units);
}

StoreCounts block_tile_rounded(const PanelTile& tile, uint16_t* out, int64_t channels,
                               int64_t panels, int64_t panel_units) noexcept {
  StoreCounts lost;
  block_results(tile, NarrowResults{out, channels, &lost}, panels, panel_units);
  return lost;
}

void block_outer_tile(const OuterPanels& x, const OuterPanels& g, const Run* runs, size_t run_count,
                      float* sums, int64_t stride) noexcept {
  const Tiles tiles;
  for (int64_t o = 0; o < g.count; o += kPanelTiles)
    for (int64_t q = 0; q < x.count; q += kRowTiles) {
      const bool both_x = q + 1 < x.count, both_g = o + 1 < g.count;
      const auto multiply = both_x ? (both_g ? outer_blocks<2, 2> : outer_blocks<2, 1>)
                                   : (both_g ? outer_blocks<1, 2> : outer_blocks<1, 1>);
      multiply(x.first + q * x.stride, x.stride, g.first + o * g.stride, g.stride, runs, run_count,
               sums + o * stride + q * kBlockFloats, stride);
    }
}

void pack_block(const float* src, int64_t count, int64_t src_stride, int64_t channels, bool turned,
                float* dst, int64_t panel_stride) noexcept {
  for (int64_t c = 0; c < channels; c += kPanel, dst += panel_stride) {
    const int64_t some = std::min(kPanel, channels - c);
    pack_panel(src + c, count, src_stride, static_cast<__mmask16>((1u << some) - 1), turned, dst);
  }
}

}  // namespace tri::ops
HWY_POP_ATTRIBUTES

#else  // no such target: products_for() never asks for these.
#include "base/check.h"

namespace tri::ops {
void block_tile(const PanelTile&, int64_t, int64_t) noexcept { TRI_CHECK(false); }
StoreCounts block_tile_rounded(const PanelTile&, uint16_t*, int64_t, int64_t, int64_t) noexcept {
  TRI_CHECK(false);
  return {};
}
void block_outer_tile(const OuterPanels&, const OuterPanels&, const Run*, size_t, float*,
                      int64_t) noexcept {
  TRI_CHECK(false);
}
void pack_block(const float*, int64_t, int64_t, int64_t, bool, float*, int64_t) noexcept {
  TRI_CHECK(false);
}
}  // namespace tri::ops
#endif  // HWY_ARCH_X86
