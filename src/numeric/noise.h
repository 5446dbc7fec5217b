#pragma once
// Room: numeric. In: what names one rounding (seed, step, tensor, element). Out: 32 random bits. A
// pure function, so neither the order of the work nor the vector width nor the number of threads
// changes a result. simd/random-inl.h is the same in vectors. Not for cryptography.
#include <cstdint>

namespace tri::numeric {

// One stream of 2^32 words. Two words of key: with one alone, two streams would be permutations
// of each other.
struct NoiseKey {
  uint32_t first = 0;
  uint32_t second = 0;
  bool operator==(const NoiseKey&) const = default;
};

// The finalizer of SplitMix64: a bijection whose every output bit depends on every input bit.
constexpr uint64_t mix64(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

constexpr NoiseKey noise_key(uint64_t seed, uint64_t step, uint64_t tensor) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;
  const uint64_t state = mix64(mix64(mix64(seed + kGolden) + step + kGolden) + tensor + kGolden);
  return {static_cast<uint32_t>(state), static_cast<uint32_t>(state >> 32)};
}

// A 32-bit finalizer (two rounds of multiply and shift, its constants found by search for the least
// avalanche bias) over the element's index, with a word of key before each round.
constexpr uint32_t noise(NoiseKey key, uint32_t index) {
  uint32_t x = index + key.first;
  x = (x ^ x >> 16) * 0x7feb352du;
  x = (x ^ x >> 15) + key.second;
  x = (x ^ x >> 16) * 0x846ca68bu;
  return x ^ x >> 16;
}

}  // namespace tri::numeric
