#include "ops/avg_pool/avg_pool.h"

#include <algorithm>

#include "base/check.h"
#include "ops/avg_pool/avg_pool_kernel.h"
#include "ops/window/slide.h"

namespace tri::ops {
namespace {

std::vector<float> shares(int64_t out, int64_t in, int64_t kernel, int64_t stride, int64_t padding,
                          bool count_include_pad) {
  std::vector<float> result;
  for (int64_t o = 0; o < out; ++o) {
    const int64_t first = o * stride - padding, end = std::min(first + kernel, in + padding);
    const int64_t real = std::min(end, in) - std::max<int64_t>(first, 0);
    result.push_back(1.0f / static_cast<float>(count_include_pad ? end - first : real));
  }
  return result;
}

}  // namespace

AvgPoolPlan::AvgPoolPlan(const Window& w, bool count_include_pad, Pass pass, int64_t samples)
    : window(w, pass, samples),
      row_share(shares(w.out.h, w.in.h, w.kernel_h, w.stride_h, w.padding_h, count_include_pad)),
      column_share(
          shares(w.out.w, w.in.w, w.kernel_w, w.stride_w, w.padding_w, count_include_pad)) {}

StoreCounts avg_pool_forward(const AvgPoolPlan& plan, const Source& src, const Sink& dst,
                             std::byte* scratch, base::ThreadPool& pool) noexcept {
  const WindowPlan& p = plan.window;
  TRI_CHECK(p.pass == Pass::kForward);
  return slide(
      p, src, dst,
      [&](const WindowRow& row) {
        avg_pool_row({row.src, row.taps.count, row.src_pixel, nullptr, nullptr, p.runs.data(),
                      p.runs.size(), p.x.src_step, p.x.dst_step,
                      plan.row_share[static_cast<size_t>(row.y)], plan.column_share.data(), row.dst,
                      row.dst_pixel, row.channels});
      },
      scratch, pool);
}

StoreCounts avg_pool_backward(const AvgPoolPlan& plan, const GradSource& src, const Sink& dst,
                              std::byte* scratch, base::ThreadPool& pool) noexcept {
  const WindowPlan& p = plan.window;
  TRI_CHECK(p.pass == Pass::kBackward);
  return slide(
      p, src, dst,
      [&](const WindowRow& row) {
        avg_pool_row({row.src, row.taps.count, row.src_pixel, plan.row_share.data() + row.taps.src,
                      plan.column_share.data(), p.runs.data(), p.runs.size(), p.x.src_step,
                      p.x.dst_step, 1.0f, nullptr, row.dst, row.dst_pixel, row.channels});
      },
      scratch, pool);
}

}  // namespace tri::ops
