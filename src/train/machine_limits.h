#pragma once
// Room: train. How fast this machine is right now, on the threads of a pool: what benches compare
// themselves with. Machines are shared and change from second to second, so every figure is the
// best of a few short bursts, and benches ask before and after what they time.
#include <cstddef>
#include <vector>

#include "base/thread_pool.h"

namespace tri::train {

// Multiplications and additions in registers, on the SIMD target that kernels use.
double fma_peak_gflops(base::ThreadPool& pool);
// The same of pairs of bf16. REQUIRES: simd::multiplies_bf16().
double pair_peak_gflops(base::ThreadPool& pool);

// Bytes read plus bytes written by a copy of `kCopyBytes`, beyond any cache.
inline constexpr size_t kCopyBytes = size_t{64} << 20;
class CopyBandwidth {
 public:
  double gbytes_per_second(base::ThreadPool& pool);

 private:
  std::vector<std::byte> from_ = std::vector(kCopyBytes, std::byte{1});
  std::vector<std::byte> to_ = std::vector(kCopyBytes, std::byte{2});
};

// Nanoseconds in which a number goes from one thread to another and back. Some tens where cores
// share a cache, some hundreds where they do not: a virtual machine may have either, by turns, and
// steps that hand much from core to core then take one of two times.
double handover_ns();

// One burst of multiply-adds that nothing waits for; returns their number, and in `sink` something
// that depends on all of them.
double fma_burst(float* sink) noexcept;
double pair_burst(float* sink) noexcept;

}  // namespace tri::train
