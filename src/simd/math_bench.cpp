// Elements per second of the vector functions on one core, in cache, beside the C library's expf.
// TRIACCEL_SIMD=AVX2: as machines without AVX-512 run them.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstddef>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "simd/math_bench.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "simd/math_arrays-inl.h"
#include "simd/target.h"

#if HWY_ONCE
namespace tri::simd {

HWY_EXPORT(exp_array);
HWY_EXPORT(sigmoid_array);
HWY_EXPORT(silu_array);
HWY_EXPORT(silu_derivative_array);
HWY_EXPORT(half_sigmoid_array);
HWY_EXPORT(half_silu_array);
HWY_EXPORT(half_silu_derivative_array);
HWY_EXPORT(silu_pair_array);
HWY_EXPORT(half_silu_pair_array);

namespace {

void expf_array(const float* src, float* dst, size_t n) {
  for (size_t i = 0; i < n; ++i) dst[i] = std::exp(src[i]);
}

template <class Fn>
void math_bench(benchmark::State& state, Fn fn) {
  constexpr size_t kElements = 4096;
  std::vector<float> src(kElements), dst(2 * kElements);
  for (size_t i = 0; i < kElements; ++i) src[i] = static_cast<float>(i) * 0x1p-8f - 8.0f;
  for (auto _ : state) {
    fn(src.data(), dst.data(), kElements);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kElements));
}

const bool target_chosen =
    force_target_from_environment().has_value();  // before it is dispatched to

BENCHMARK_CAPTURE(math_bench, expf_of_the_c_library, expf_array);
BENCHMARK_CAPTURE(math_bench, exp, HWY_DYNAMIC_DISPATCH(exp_array));
BENCHMARK_CAPTURE(math_bench, sigmoid, HWY_DYNAMIC_DISPATCH(sigmoid_array));
BENCHMARK_CAPTURE(math_bench, silu, HWY_DYNAMIC_DISPATCH(silu_array));
BENCHMARK_CAPTURE(math_bench, silu_derivative, HWY_DYNAMIC_DISPATCH(silu_derivative_array));
BENCHMARK_CAPTURE(math_bench, sigmoid_of_half, HWY_DYNAMIC_DISPATCH(half_sigmoid_array));
BENCHMARK_CAPTURE(math_bench, silu_of_half, HWY_DYNAMIC_DISPATCH(half_silu_array));
BENCHMARK_CAPTURE(math_bench, silu_derivative_of_half,
                  HWY_DYNAMIC_DISPATCH(half_silu_derivative_array));
BENCHMARK_CAPTURE(math_bench, silu_with_derivative, HWY_DYNAMIC_DISPATCH(silu_pair_array));
BENCHMARK_CAPTURE(math_bench, silu_with_derivative_of_half,
                  HWY_DYNAMIC_DISPATCH(half_silu_pair_array));

}  // namespace
}  // namespace tri::simd
#endif  // HWY_ONCE
