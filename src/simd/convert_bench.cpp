// Elements per second of each conversion on one core, beside memcpy of as many fp32 values. Two
// sizes: 16 Ki elements stay in the caches, 16 Mi come from memory.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstring>
#include <string>
#include <vector>

#include "simd/convert.h"

namespace tri::simd {
namespace {

using numeric::Format;

constexpr int64_t kCached = 1 << 14;
constexpr int64_t kStreamed = 1 << 24;

std::vector<float> values(size_t n) {
  std::vector<float> out(n);
  const numeric::NoiseKey key = numeric::noise_key(1, 2, 3);
  for (size_t i = 0; i < n; ++i) {
    const auto word = static_cast<int32_t>(numeric::noise(key, static_cast<uint32_t>(i)));
    out[i] = static_cast<float>(word) * 0x1p-30f;
  }
  return out;
}

void copy_bench(benchmark::State& state) {
  const auto n = static_cast<size_t>(state.range(0));
  const std::vector<float> src = values(n);
  std::vector<float> dst(n);
  for (auto _ : state) {
    std::memcpy(dst.data(), src.data(), n * sizeof(float));
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void encode_bench(benchmark::State& state, Format format) {
  const auto n = static_cast<size_t>(state.range(0));
  const std::vector<float> src = values(n);
  std::vector<unsigned char> dst(n * numeric::storage_bytes(format));
  for (auto _ : state) {
    benchmark::DoNotOptimize(encode(format, src.data(), dst.data(), n));
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void encode_stochastic_bench(benchmark::State& state, Format format) {
  const auto n = static_cast<size_t>(state.range(0));
  const std::vector<float> src = values(n);
  std::vector<unsigned char> dst(n * numeric::storage_bytes(format));
  const numeric::NoiseKey key = numeric::noise_key(4, 5, 6);
  for (auto _ : state) {
    benchmark::DoNotOptimize(encode_stochastic(format, src.data(), dst.data(), n, key, 0));
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void decode_bench(benchmark::State& state, Format format) {
  const auto n = static_cast<size_t>(state.range(0));
  std::vector<unsigned char> src(n * numeric::storage_bytes(format));
  encode(format, values(n).data(), src.data(), n);
  std::vector<float> dst(n);
  for (auto _ : state) {
    decode(format, src.data(), dst.data(), n);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

const bool kRegistered = [] {
  benchmark::RegisterBenchmark("memcpy/fp32", copy_bench)->Arg(kCached)->Arg(kStreamed);
  for (size_t f = 0; f < numeric::kFormats; ++f) {  // fp32: the same loops as a plain copy
    const auto format = static_cast<Format>(f);
    const std::string name(numeric::kSpecs[f].name);
    const auto add = [&](const std::string& kind, auto run) {
      benchmark::RegisterBenchmark(fmt::format("{}/{}", kind, name).c_str(), run, format)
          ->Arg(kCached)
          ->Arg(kStreamed);
    };
    add("decode", decode_bench);
    add("encode", encode_bench);
    add("encode_stochastic", encode_stochastic_bench);
  }
  return true;
}();

}  // namespace
}  // namespace tri::simd
