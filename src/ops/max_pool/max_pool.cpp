#include "ops/max_pool/max_pool.h"

#include "base/check.h"
#include "ops/max_pool/max_pool_kernel.h"
#include "ops/window/slide.h"

namespace tri::ops {

MaxPoolPlan::MaxPoolPlan(const Window& w, Pass pass, int64_t samples) : window(w, pass, samples) {
  TRI_CHECK(w.kernel_h * w.kernel_w <= 255, "kernel {}x{}", w.kernel_h, w.kernel_w);
  const WindowAxis y(Pass::kForward, w.in.h, w.out.h, w.kernel_h, w.stride_h, w.padding_h);
  const WindowAxis x(Pass::kForward, w.in.w, w.out.w, w.kernel_w, w.stride_w, w.padding_w);
  TRI_CHECK(y.taps(0).count > 0 && y.taps(w.out.h - 1).count > 0 && x.taps(0).count > 0 &&
                x.taps(w.out.w - 1).count > 0,
            "a window of {} covers padding only", w.in.text());
}

size_t MaxPoolPlan::argmax_bytes() const {
  return static_cast<size_t>(window.samples * window.window.out.elements());
}

StoreCounts max_pool_forward(const MaxPoolPlan& plan, const Source& src, const Sink& dst,
                             uint8_t* argmax, std::byte* scratch, base::ThreadPool& pool) noexcept {
  const WindowPlan& p = plan.window;
  TRI_CHECK(p.pass == Pass::kForward);
  return slide(
      p, src, dst,
      [&](const WindowRow& row) {
        uint8_t* chosen = nullptr;
        if (argmax != nullptr)
          chosen = argmax + (row.sample * p.dst.h + row.y) * p.dst.w * p.dst.c + row.channel;
        max_pool_row({row.src, row.taps.count, row.src_pixel, row.taps.k * p.window.kernel_w,
                      p.window.kernel_w, p.runs.data(), p.runs.size(), p.x.src_step, row.dst,
                      row.dst_pixel, chosen, p.dst.c, row.channels});
      },
      scratch, pool);
}

StoreCounts max_pool_backward(const MaxPoolPlan& plan, const GradSource& src, const uint8_t* argmax,
                              const Sink& dst, std::byte* scratch,
                              base::ThreadPool& pool) noexcept {
  const WindowPlan& p = plan.window;
  TRI_CHECK(p.pass == Pass::kBackward);
  const int64_t kernel_w = p.window.kernel_w;
  return slide(
      p, src, dst,
      [&](const WindowRow& row) {
        const uint8_t* chosen =
            argmax + (row.sample * p.src.h + row.taps.src) * p.src.w * p.src.c + row.channel;
        max_pool_grad_row({row.src, row.taps.count, row.src_pixel, chosen, p.src.w * p.src.c,
                           p.src.c, row.taps.k * kernel_w, p.y.tap_step * kernel_w, p.x.tap_step,
                           p.runs.data(), p.runs.size(), p.x.src_step, p.x.dst_step, row.dst,
                           row.dst_pixel, row.channels});
      },
      scratch, pool);
}

}  // namespace tri::ops
