#pragma once
// Room: base. Random numbers as a pure function of what they are for: Philox4x32-10 (Salmon et
// al., "Parallel random numbers: as easy as 1, 2, 3", 2011). No state is shared or saved, so any
// thread, tile or resumed run can draw any number again.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <utility>

#include "base/check.h"

namespace tri::base {

struct Philox {
  using Words = std::array<uint32_t, 4>;

  // The bijection of `counter` chosen by `key`, whose low half is Random123's key[0].
  static constexpr Words block(uint64_t key, Words counter) {
    uint32_t k0 = static_cast<uint32_t>(key);
    uint32_t k1 = static_cast<uint32_t>(key >> 32);
    auto [c0, c1, c2, c3] = counter;
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53} * c0;
      const uint64_t p1 = uint64_t{0xCD9E8D57} * c2;
      c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
      c1 = static_cast<uint32_t>(p1);
      c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c3 = static_cast<uint32_t>(p0);
      k0 += 0x9E3779B9;  // the golden ratio
      k1 += 0xBB67AE85;  // sqrt(3) - 1
    }
    return {c0, c1, c2, c3};
  }

  static constexpr Words block(uint64_t key, uint64_t low, uint64_t high) {
    return block(key, {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
                       static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32)});
  }
};

// In [0, 1), one of 2^24 equally spaced floats.
constexpr float uniform_float(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

// What a stream is for. The values are part of every run's results: append, never renumber.
enum class Purpose : uint32_t {
  kShuffle = 0,
  kAugment = 1,
  kInit = 2,
  kDropout = 3,
  kStochasticDepth = 4,
  kRounding = 5,
  kLabelSampling = 6,
  kSynthetic = 7,
};

// The numbers for one meaning: (seed, purpose, a, b), such as (seed, kAugment, epoch, sample),
// (seed, kDropout, epoch * samples + sample, layer) or (seed, kRounding, step, tensor). The first
// three choose the key; b and the position within the stream form the counter. Read on with next()
// and its kin, or anywhere with block().
class Stream {
 public:
  constexpr Stream(uint64_t seed, Purpose purpose, uint64_t a = 0, uint64_t b = 0) : b_(b) {
    const Philox::Words words = Philox::block(seed, a, static_cast<uint64_t>(purpose));
    key_ = uint64_t{words[1]} << 32 | words[0];
  }

  constexpr uint64_t key() const { return key_; }

  // Words 4 * index to 4 * index + 3 of the stream.
  constexpr Philox::Words block(uint64_t index) const { return Philox::block(key_, index, b_); }

  // The next word will be word `position` of the stream.
  constexpr void seek(uint64_t position) {
    position_ = position;
    if (position % 4 != 0) words_ = block(position / 4);
  }

  constexpr uint32_t next() {
    const size_t lane = position_ % 4;
    if (lane == 0) words_ = block(position_ / 4);
    ++position_;
    return words_[lane];
  }

  constexpr float uniform() { return uniform_float(next()); }

  // In [0, n), each value equally likely (Lemire, 2019). REQUIRES: n > 0.
  constexpr uint32_t below(uint32_t n) {
    TRI_DCHECK(n > 0);
    uint64_t product = uint64_t{next()} * n;
    if (static_cast<uint32_t>(product) < n) {
      const uint32_t uneven = (0u - n) % n;  // 2^32 mod n low parts are met once too often
      while (static_cast<uint32_t>(product) < uneven) product = uint64_t{next()} * n;
    }
    return static_cast<uint32_t>(product >> 32);
  }

  // Two independent standard normal numbers (Box-Muller).
  std::pair<double, double> normal_pair() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform_double()));
    const double angle = 2 * std::numbers::pi * uniform_double();
    return {radius * std::cos(angle), radius * std::sin(angle)};
  }

 private:
  constexpr double uniform_double() {
    const uint64_t high = next();
    return static_cast<double>((high << 32 | next()) >> 11) * 0x1p-53;
  }

  uint64_t key_ = 0;
  uint64_t b_;
  uint64_t position_ = 0;
  Philox::Words words_{};
};

}  // namespace tri::base
