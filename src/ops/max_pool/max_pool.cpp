#include "ops/max_pool/max_pool.h"

#include <algorithm>

#include "base/check.h"
#include "ops/max_pool/max_pool_kernel.h"
#include "ops/rows/counts.h"
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

StoreCounts max_pool_again(const MaxPoolPlan& plan, const Source& src, const Sink& dst,
                           const uint8_t* argmax, base::ThreadPool& pool) noexcept {
  constexpr int64_t kPiece = 256;  // channels at a time
  const Window& w = plan.window.window;
  CountSum counts;
  pool.run(static_cast<size_t>(plan.window.samples * w.out.h), [&](size_t row, size_t) {
    const int64_t sample = static_cast<int64_t>(row) / w.out.h,
                  y = static_cast<int64_t>(row) % w.out.h;
    float seen[kPiece], chosen[kPiece];
    for (int64_t x = 0; x < w.out.w; ++x)
      for (int64_t first = 0; first < w.out.c; first += kPiece) {
        const int64_t channels = std::min(kPiece, w.out.c - first);
        const int64_t pixel = y * w.out.w + x;
        const uint8_t* taps = argmax + (sample * w.out.pixels() + pixel) * w.out.c + first;
        for (int64_t tap = 0; tap < w.kernel_h * w.kernel_w; ++tap) {
          const int64_t in_y = y * w.stride_h - w.padding_h + tap / w.kernel_w;
          const int64_t in_x = x * w.stride_w - w.padding_w + tap % w.kernel_w;
          if (in_y < 0 || in_y >= w.in.h || in_x < 0 || in_x >= w.in.w) continue;
          load_rows(src, {sample, in_y * w.in.w + in_x, 1, first, channels}, seen, channels);
          for (int64_t c = 0; c < channels; ++c)
            if (taps[c] == tap) chosen[c] = seen[c];
        }
        counts.add(store_rows(dst, {sample, pixel, 1, first, channels}, chosen, channels));
      }
  });
  return counts.total();
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
