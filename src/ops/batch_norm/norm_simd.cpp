// ops/batch_norm/norm_simd.cpp; contract in norm_kernel.h. Never throws, allocates or logs.
#include "ops/batch_norm/norm_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/batch_norm/norm_simd.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"         // after foreach_target.h

HWY_BEFORE_NAMESPACE();
namespace tri::ops::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Calls body.operator()<kVectors>(d, c) over all channels, widest first: four independent chains
// hide the latency of an addition.
template <class Body>
HWY_INLINE void for_channel_blocks(int64_t channels, Body body) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + 4 * lanes <= channels; c += 4 * lanes) body.template run<4>(d, c);
  for (; c + lanes <= channels; c += lanes) body.template run<1>(d, c);
  for (; c < channels; ++c) body.template run<1>(hn::CappedTag<float, 1>(), c);
}

struct Moments {
  template <int kVectors, class D>
  HWY_INLINE void run(D d, int64_t c) const {
    using V = hn::Vec<D>;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    V sum[kVectors], square[kVectors];
    for (int v = 0; v < kVectors; ++v) sum[v] = square[v] = hn::Zero(d);
    for (int64_t i = 0; i < count; ++i)
      for (int v = 0; v < kVectors; ++v)
        sum[v] = hn::Add(sum[v], hn::LoadU(d, rows + i * stride + c + v * lanes));
    const V share = hn::Set(d, 1.0f / static_cast<float>(count));
    for (int v = 0; v < kVectors; ++v) sum[v] = hn::Mul(sum[v], share);
    for (int64_t i = 0; i < count; ++i) {
      for (int v = 0; v < kVectors; ++v) {
        const V off = hn::Sub(hn::LoadU(d, rows + i * stride + c + v * lanes), sum[v]);
        square[v] = hn::MulAdd(off, off, square[v]);
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(sum[v], d, mean + c + v * lanes);
      hn::StoreU(square[v], d, m2 + c + v * lanes);
    }
  }
  const float* rows;
  int64_t stride, count;
  float* mean;
  float* m2;
};

struct GradSums {
  template <int kVectors, class D>
  HWY_INLINE void run(D d, int64_t c) const {
    using V = hn::Vec<D>;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    V sum[kVectors], product[kVectors], center[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      sum[v] = product[v] = hn::Zero(d);
      center[v] = hn::LoadU(d, mean + c + v * lanes);
    }
    for (int64_t i = 0; i < count; ++i) {
      for (int v = 0; v < kVectors; ++v) {
        const V g = hn::LoadU(d, dz + i * dz_stride + c + v * lanes);
        const V off = hn::Sub(hn::LoadU(d, y + i * y_stride + c + v * lanes), center[v]);
        sum[v] = hn::Add(sum[v], g);
        product[v] = hn::MulAdd(g, off, product[v]);
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(sum[v], d, plain + c + v * lanes);
      hn::StoreU(product[v], d, centred + c + v * lanes);
    }
  }
  const float* dz;
  int64_t dz_stride;
  const float* y;
  int64_t y_stride, count;
  const float* mean;
  float* plain;
  float* centred;
};

void tile_moments(const float* rows, int64_t stride, int64_t count, int64_t channels, float* mean,
                  float* m2) {
  for_channel_blocks(channels, Moments{rows, stride, count, mean, m2});
}

void tile_grad_sums(const float* dz, int64_t dz_stride, const float* y, int64_t y_stride,
                    int64_t count, int64_t channels, const float* mean, float* plain,
                    float* centred) {
  for_channel_blocks(channels, GradSums{dz, dz_stride, y, y_stride, count, mean, plain, centred});
}

}  // namespace
}  // namespace tri::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tri::ops {
HWY_EXPORT(tile_moments);
HWY_EXPORT(tile_grad_sums);

void tile_moments(const float* rows, int64_t stride, int64_t count, int64_t channels, float* mean,
                  float* m2) noexcept {
  HWY_DYNAMIC_DISPATCH(tile_moments)(rows, stride, count, channels, mean, m2);
}
void tile_grad_sums(const float* dz, int64_t dz_stride, const float* y, int64_t y_stride,
                    int64_t count, int64_t channels, const float* mean, float* plain,
                    float* centred) noexcept {
  HWY_DYNAMIC_DISPATCH(tile_grad_sums)
  (dz, dz_stride, y, y_stride, count, channels, mean, plain, centred);
}
}  // namespace tri::ops
#endif  // HWY_ONCE
