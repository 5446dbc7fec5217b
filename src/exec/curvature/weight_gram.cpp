#include "exec/curvature/weight_gram.h"

#include <algorithm>

#include "base/ceil_div.h"
#include "base/check.h"
#include "exec/curvature/patch_rows.h"
#include "exec/step_run.h"

namespace tri::exec {
namespace {

using ops::kPanel;

// What is held of each sample at a time: small beside its activations, large beside the cost of
// loading an operand once more for every chunk.
constexpr int64_t kChunkFloats = 1 << 14;
// Packed by a worker at a time, within L2.
constexpr int64_t kWorkerFloats = 1 << 15;
// Two matrices of this many rows squared are what the ghost form may hold: 8 MiB.
constexpr int64_t kMostGhostRows = 1024;

using base::ceil_div;
int64_t up_to_16(int64_t n) { return ceil_div(n, 16) * 16; }

WeightGram::Form cheaper(const ops::ConvGeometry& g, int64_t samples) {
  if (g.depthwise()) return WeightGram::Form::kDepthwise;
  const auto b = static_cast<double>(samples), t = static_cast<double>(g.out.pixels());
  const auto p = static_cast<double>(g.taps() * g.group_in());
  const auto d = static_cast<double>(g.group_out());
  const double direct = (b * t + b * b / 2) * p * d, ghost = b * t * b * t / 2 * (p + d);
  return ghost < direct && samples * g.out.pixels() <= kMostGhostRows ? WeightGram::Form::kGhost
                                                                      : WeightGram::Form::kDirect;
}

}  // namespace

struct WeightGram::Room {
  Room(const WeightGram& plan, std::byte* scratch) {
    const auto take = [&scratch](size_t bytes) {
      std::byte* part = scratch;
      scratch += (bytes + 63) / 64 * 64;
      return part;
    };
    sums = reinterpret_cast<float*>(take(plan.products_.sum_bytes()));
    if (plan.form_ == Form::kGhost)
      more_sums = reinterpret_cast<float*>(take(plan.products_.sum_bytes()));
    matrix = reinterpret_cast<float*>(take(plan.matrix_floats() * sizeof(float)));
    products = take(plan.products_.scratch_bytes());
    workers = scratch;
  }
  float* sums;
  float* more_sums = nullptr;
  float* matrix;        // rows of samples, or of positions
  std::byte* products;  // scratch of RowGram::add()
  std::byte* workers;
};

WeightGram::WeightGram(const ops::ConvGeometry& geometry, int64_t samples, size_t threads)
    : WeightGram(geometry, samples, threads, cheaper(geometry, samples)) {}

WeightGram::WeightGram(const ops::ConvGeometry& geometry, int64_t samples, size_t threads,
                       Form form)
    : geometry_(geometry),
      samples_(samples),
      threads_(threads),
      form_(form),
      products_(form == Form::kGhost ? samples * geometry.out.pixels() : samples, threads) {
  TRI_CHECK((form == Form::kDepthwise) == geometry.depthwise());
  switch (form) {
    case Form::kDepthwise:
      each_.emplace(geometry, 1, 0);
      return;
    case Form::kGhost:
      columns_ =
          std::min(up_to_16(std::max(patch(), geometry.group_out())),
                   std::max<int64_t>(16, samples * kChunkFloats / products_.padded / 16 * 16));
      return;
    case Form::kDirect: {
      // Nearly square chunks load each operand least often.
      const int64_t tile = ops::outer_rows() * kPanel;
      const int64_t tiles = std::max<int64_t>(1, samples * kChunkFloats / products_.padded / tile);
      out_panels_ = std::min<int64_t>(geometry.panels(), 8);
      patch_panels_ =
          std::clamp<int64_t>(tiles / out_panels_, 1, ceil_div(patch(), ops::outer_rows()));
      const int64_t row = patch_panels_ * ops::outer_rows() + out_panels_ * kPanel;
      strip_ = std::clamp<int64_t>(kWorkerFloats / (2 * row), 1, positions());
      return;
    }
  }
}

size_t WeightGram::matrix_floats() const {
  const int64_t columns = form_ == Form::kDepthwise ? geometry_.weight_count()
                          : form_ == Form::kGhost
                              ? columns_
                              : patch_panels_ * ops::outer_rows() * out_panels_ * kPanel;
  return static_cast<size_t>(products_.padded * columns);
}

// One strip of both operands, as loaded and as packed.
size_t WeightGram::worker_floats() const {
  const int64_t patch_floats = patch_panels_ * ops::outer_rows(), out_floats = out_panels_ * kPanel;
  return static_cast<size_t>(
      up_to_16(strip_ * (std::max(patch_floats, out_floats) + patch_floats + out_floats)));
}

size_t WeightGram::scratch_bytes() const {
  const size_t sums = (form_ == Form::kGhost ? 2 : 1) * products_.sum_bytes();
  size_t workers = 0;
  if (form_ == Form::kDirect) workers = threads_ * worker_floats() * sizeof(float);
  if (form_ == Form::kDepthwise) workers = each_->shared_bytes() + threads_ * each_->worker_bytes();
  return sums + matrix_floats() * sizeof(float) + (products_.scratch_bytes() + 63) / 64 * 64 +
         workers;
}

void WeightGram::add(const ops::Source& x, const ops::GradSource& d, double* gram,
                     std::byte* scratch, base::ThreadPool& pool) const {
  const Room room(*this, scratch);
  if (form_ == Form::kDepthwise) return add_depthwise(x, d, gram, room, pool);
  for (int64_t group = 0; group < geometry_.groups; ++group)
    if (form_ == Form::kDirect)
      add_direct(group, x, d, gram, room, pool);
    else
      add_ghost(group, x, d, gram, room, pool);
}

void WeightGram::add_direct(int64_t group, const ops::Source& x, const ops::GradSource& d,
                            double* gram, const Room& room, base::ThreadPool& pool) const {
  const int64_t height = ops::outer_rows(), outs = geometry_.group_out();
  const int64_t all_patch_panels = ceil_div(patch(), height), all_out_panels = geometry_.panels();
  products_.clear(room.sums);
  for (int64_t first_out = 0; first_out < all_out_panels; first_out += out_panels_)
    for (int64_t first_in = 0; first_in < all_patch_panels; first_in += patch_panels_) {
      const int64_t ins = std::min(patch_panels_, all_patch_panels - first_in);
      const int64_t panels = std::min(out_panels_, all_out_panels - first_out);
      const int64_t columns = ins * panels * height * kPanel;
      const PatchRange range{group, first_in * height,
                             std::min(patch(), (first_in + ins) * height)};
      const int64_t channel = first_out * kPanel;
      const int64_t channels = std::min(outs - channel, panels * kPanel);
      pool.run(static_cast<size_t>(products_.padded), [&](size_t row, size_t worker) {
        const auto n = static_cast<int64_t>(row);
        float* sums = room.matrix + n * columns;
        std::fill_n(sums, columns, 0.0f);
        if (n >= samples_) return;
        float* loaded =
            reinterpret_cast<float*>(room.workers) + static_cast<int64_t>(worker * worker_floats());
        float* packed_x = loaded + strip_ * std::max(ins * height, panels * kPanel);
        float* packed_g = packed_x + strip_ * ins * height;
        for (int64_t first = 0; first < positions(); first += strip_) {
          const int64_t count = std::min(strip_, positions() - first);
          const int64_t elements = range.end - range.begin;
          load_patches(geometry_, x, n, first, count, range, loaded, elements);
          ops::pack_rows(loaded, count, elements, elements, height, packed_x, height,
                         count * height);
          ops::load_grad_rows(d, {n, first, count, group * outs + channel, channels}, loaded,
                              channels);
          ops::pack_rows(loaded, count, channels, channels, kPanel, packed_g, kPanel,
                         count * kPanel);
          const ops::Run run{0, 0, static_cast<int32_t>(count)};
          ops::outer_tile({packed_x, height, count * height, ins},
                          {packed_g, kPanel, count * kPanel, panels}, &run, 1, sums,
                          ins * height * kPanel);
        }
      });
      products_.add(room.matrix, columns, columns, room.sums, room.products, pool);
    }
  for (int64_t i = 0; i < samples_; ++i)
    for (int64_t j = 0; j <= i; ++j) gram[i * samples_ + j] += products_.value(room.sums, i, j);
}

void WeightGram::add_ghost(int64_t group, const ops::Source& x, const ops::GradSource& d,
                           double* gram, const Room& room, base::ThreadPool& pool) const {
  const int64_t outs = geometry_.group_out(), each = positions();
  // Sums the products of rows of `length` numbers that load(sample, begin, end, dst, stride) loads.
  const auto multiply = [&](int64_t length, float* sums, auto load) {
    products_.clear(sums);
    for (int64_t begin = 0; begin < length; begin += columns_) {
      const int64_t end = std::min(length, begin + columns_), stride = up_to_16(end - begin);
      float* behind = room.matrix + products_.rows * stride;
      std::fill_n(behind, (products_.padded - products_.rows) * stride, 0.0f);
      pool.run(static_cast<size_t>(samples_), [&](size_t sample, size_t) {
        float* rows = room.matrix + static_cast<int64_t>(sample) * each * stride;
        if (stride > end - begin) std::fill_n(rows, each * stride, 0.0f);
        load(static_cast<int64_t>(sample), begin, end, rows, stride);
      });
      products_.add(room.matrix, stride, stride, sums, room.products, pool);
    }
  };
  multiply(patch(), room.sums,
           [&](int64_t n, int64_t begin, int64_t end, float* rows, int64_t stride) {
             load_patches(geometry_, x, n, 0, each, {group, begin, end}, rows, stride);
           });
  multiply(outs, room.more_sums,
           [&](int64_t n, int64_t begin, int64_t end, float* rows, int64_t stride) {
             ops::load_grad_rows(d, {n, 0, each, group * outs + begin, end - begin}, rows, stride);
           });
  pool.run(static_cast<size_t>(samples_), [&](size_t sample, size_t) {
    const auto i = static_cast<int64_t>(sample);
    for (int64_t j = 0; j <= i; ++j) {
      double sum = 0;
      for (int64_t t = i * each; t < (i + 1) * each; ++t)
        for (int64_t s = j * each; s < (j + 1) * each; ++s) {
          const int64_t row = std::max(t, s), column = std::min(t, s);
          sum += products_.value(room.sums, row, column) *
                 products_.value(room.more_sums, row, column);
        }
      gram[i * samples_ + j] += sum;
    }
  });
}

void WeightGram::add_depthwise(const ops::Source& x, const ops::GradSource& d, double* gram,
                               const Room& room, base::ThreadPool& pool) const {
  const int64_t columns = geometry_.weight_count();
  std::fill_n(room.matrix, products_.padded * columns, 0.0f);
  for (int64_t n = 0; n < samples_; ++n) {
    KeepGradient keep(reinterpret_cast<std::byte*>(room.matrix + n * columns), Format::kF32,
                      Format::kF32);
    ops::depthwise_backward_weights(*each_, sample_of(x, n), sample_of(d, n), nullptr, keep,
                                    nullptr, room.workers, pool);
  }
  products_.clear(room.sums);
  products_.add(room.matrix, columns, columns, room.sums, room.products, pool);
  for (int64_t i = 0; i < samples_; ++i)
    for (int64_t j = 0; j <= i; ++j) gram[i * samples_ + j] += products_.value(room.sums, i, j);
}

}  // namespace tri::exec
