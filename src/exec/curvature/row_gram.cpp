#include "exec/curvature/row_gram.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "ops/conv2d/panel_kernel.h"
#include "ops/rows/transform_kernel.h"

namespace tri::exec {
namespace {

using ops::kPanel;

// Columns of a piece: its 16 transposed rows are 16 KiB and stay in L1 while all others pass by.
constexpr int64_t kPiece = 256;
// Enough for uneven cores.
constexpr int64_t kWantedTiles = 32;

using base::ceil_div;

}  // namespace

RowGram::RowGram(int64_t row_count, size_t thread_count)
    : rows(row_count),
      padded(ceil_div(row_count, kPanel) * kPanel),
      blocks(padded / kPanel),
      lanes(std::max<int64_t>(1, kWantedTiles / blocks)),
      threads(thread_count) {}

size_t RowGram::sum_bytes() const {
  return static_cast<size_t>(lanes * padded * padded) * sizeof(float);
}

size_t RowGram::scratch_bytes() const {
  const auto shared = static_cast<size_t>(padded) * sizeof(ops::RowRef);
  return shared + threads * static_cast<size_t>((kPiece + padded) * kPanel) * sizeof(float);
}

void RowGram::clear(float* sums) const { std::fill_n(sums, lanes * padded * padded, 0.0f); }

void RowGram::add(const float* matrix, int64_t stride, int64_t columns, float* sums,
                  std::byte* scratch, base::ThreadPool& pool) const {
  auto* refs = reinterpret_cast<ops::RowRef*>(scratch);
  for (int64_t r = 0; r < padded; ++r)
    refs[r] = {static_cast<int32_t>(r * stride), static_cast<int32_t>(r * kPanel)};
  auto* workers = reinterpret_cast<float*>(refs + padded);
  const int64_t pieces = ceil_div(columns, kPiece);
  const int64_t used = std::min(lanes, pieces);
  pool.run(static_cast<size_t>(used * blocks), [&](size_t tile, size_t worker) {
    const int64_t block = static_cast<int64_t>(tile) % blocks;
    const int64_t lane = static_cast<int64_t>(tile) / blocks;
    float* panel = workers + static_cast<int64_t>(worker) * (kPiece + padded) * kPanel;
    float* out = panel + kPiece * kPanel;
    float* sum = sums + (lane * blocks + block) * padded * kPanel;
    const int64_t first = block * kPanel;
    for (int64_t piece = lane; piece < pieces; piece += lanes) {
      const int64_t begin = piece * kPiece, some = std::min(kPiece, columns - begin);
      for (int64_t c = 0; c < some; c += kPanel)
        ops::transpose_block(matrix + first * stride + begin + c, stride, panel + c * kPanel,
                             kPanel);
      const ops::Segment segment{0, 0, static_cast<int32_t>(some)};
      const ops::RowClass rows_below{static_cast<int32_t>(first), static_cast<int32_t>(rows), 0, 1};
      ops::panel_tile({matrix + begin, panel, nullptr, out, refs, &segment, &rows_below, 1}, 1, 0);
      ops::add_floats(out + first * kPanel, (rows - first) * kPanel, sum + first * kPanel);
    }
  });
}

double RowGram::value(const float* sums, int64_t row, int64_t column) const {
  double sum = 0;
  for (int64_t lane = 0; lane < lanes; ++lane)
    sum +=
        double{sums[((lane * blocks + column / kPanel) * padded + row) * kPanel + column % kPanel]};
  return sum;
}

}  // namespace tri::exec
