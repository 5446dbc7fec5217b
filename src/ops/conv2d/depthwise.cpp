#include "ops/conv2d/depthwise.h"

#include "base/check.h"
#include "ops/conv2d/depthwise_kernel.h"
#include "ops/window/slide.h"

namespace tri::ops {
namespace {

template <class S>
StoreCounts run(const DepthwisePlan& plan, const S& src, const Weights& weights, const float* bias,
                const Sink& dst, std::byte* scratch, base::ThreadPool& pool) {
  const ConvGeometry& g = plan.geometry;
  const WindowPlan& p = plan.window;
  const float* wide = wide_weights(g, weights, scratch, pool);
  const int64_t tap = g.padded_channels(), tap_row = g.kernel_w * tap;
  return slide(
      p, src, dst,
      [&](const WindowRow& row) {
        depthwise_row({row.src, row.taps.count, row.src_pixel,
                       wide + row.taps.k * tap_row + row.channel, p.y.tap_step * tap_row, tap,
                       p.x.tap_step, p.runs.data(), p.runs.size(), p.x.src_step, p.x.dst_step,
                       bias == nullptr ? nullptr : bias + row.channel, row.dst, row.dst_pixel,
                       row.channels});
      },
      scratch + plan.shared_bytes(), pool);
}

}  // namespace

const float* wide_weights(const ConvGeometry& g, const Weights& weights, std::byte* scratch,
                          base::ThreadPool& pool) noexcept {
  if (weights.direct()) return static_cast<const float*>(weights.data);
  auto* wide = reinterpret_cast<float*>(scratch);
  const int64_t count = g.padded_channels();
  pool.run(static_cast<size_t>(g.taps()), [&](size_t tap, size_t) {
    const int64_t begin = static_cast<int64_t>(tap) * count;
    load_weights(weights, begin, count, wide + begin);
  });
  return wide;
}

DepthwisePlan::DepthwisePlan(const ConvGeometry& g, Direction direction, int64_t samples)
    : geometry(g),
      window(
          {g.in, g.out, g.kernel_h, g.kernel_w, g.stride_h, g.stride_w, g.padding_h, g.padding_w},
          direction == Direction::kForward ? Pass::kForward : Pass::kBackward, samples, g.taps()) {
  TRI_CHECK(g.depthwise(), "groups = {}, in = {}, out = {}", g.groups, g.in.text(), g.out.text());
}

size_t DepthwisePlan::shared_bytes() const {
  return static_cast<size_t>(geometry.weight_count()) * sizeof(float);
}

StoreCounts depthwise_forward(const DepthwisePlan& plan, const Source& src, const Weights& weights,
                              const float* bias, const Sink& dst, std::byte* scratch,
                              base::ThreadPool& pool) noexcept {
  TRI_CHECK(plan.window.pass == Pass::kForward);
  return run(plan, src, weights, bias, dst, scratch, pool);
}

StoreCounts depthwise_backward_data(const DepthwisePlan& plan, const GradSource& src,
                                    const Weights& weights, const Sink& dst, std::byte* scratch,
                                    base::ThreadPool& pool) noexcept {
  TRI_CHECK(plan.window.pass == Pass::kBackward);
  return run(plan, src, weights, nullptr, dst, scratch, pool);
}

}  // namespace tri::ops
